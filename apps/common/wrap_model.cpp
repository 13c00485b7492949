// SPDX-License-Identifier: MIT
// apps/common/wrap_model.cpp - see the header.
#include "apps/common/wrap_model.h"

#include <nlohmann/json.hpp>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "data/loader.h"
#include "dist/doctor.h"
#include "dist/ready_order.h"
#include "dist/sum_over_ranks.h"
#include "models/catalog.h"
#include "nn/batch_norm.h"
#include "nn/optim/catalog.h"
#include "nn/state_dict.h"

namespace brigade::apps {

std::unique_ptr<nn::Module> make_model(const TrainOptions& options, std::int64_t classes) {
  default_generator() = {.seed = options.seed};
  auto model = models::make_model(options.model, {.classes = classes,
                                                  .stem = options.stem,
                                                  .precision = options.precision,
                                                  .checkpoint_activations = options.checkpoint_activations});
  if (!options.init.empty()) nn::load(*model, options.init);
  return model;
}

void check_same_flags(const TrainOptions& options, dist::ProcessGroup& group) {
  auto flags = nlohmann::ordered_json::parse(options.to_json());
  for (const char* free : {"data", "init", "save", "threads", "device"}) flags.erase(free);
  std::vector<std::string> lines;
  for (const auto& [flag, value] : flags.items()) lines.push_back(str(flag, " ", value.dump()));
  std::string found;
  const auto compare = [&](dist::Transport& transport) { found = dist::difference(transport, lines); };
  group.run({.operation = "flags", .run = compare}).wait();
  BRIGADE_CHECK(found.empty(), "ranks were started with different flags: ", found);
}

std::unique_ptr<dist::Ddp> wrap_model(const TrainOptions& options, nn::Module& model,
                                      const data::Dataset& images, dist::ProcessGroup& group,
                                      const std::string& saved_plan) {
  dist::DdpOptions ddp = options.ddp();
  if (ddp.buffers == dist::BufferPolicy::sync_bn)
    nn::set_statistics_combiner(model,
                                [&](const Variable& sums) { return dist::sum_over_ranks(sums, group); });
  if (!saved_plan.empty()) {
    if (!dist::plan_rule(ddp.plan.rule).replans) ddp.plan.rule = "file";
    ddp.plan.json = saved_plan;
  } else if (options.bucket_order == "ready") {
    data::Batch batch = data::Loader(images, options.loading(group.rank(), group.size())).next();
    batch.images = batch.images.to(group.device());
    batch.labels = batch.labels.to(group.device());
    ddp.plan.observed =
        dist::observe_ready_order(model.named_parameters(), model.named_buffers(), group,
                                  [&] { backward(cross_entropy(model(batch.images), batch.labels)); });
  }
  auto wrapped = std::make_unique<dist::Ddp>(model.named_parameters(), model.named_buffers(), group, ddp);
  wrapped->ledger().timeline().set_layers(model.number_layers());  // What its spans are called.
  return wrapped;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainOptions& options,
                                                 optim::FlatParameters& parameters) {
  return optim::make_optimizer(
      options.optimizer, parameters,
      {.lr = options.lr,
       .momentum = options.momentum,
       .weight_decay = options.weight_decay,
       .nesterov = options.nesterov,
       .decay = options.norm_decay ? optim::DecayOn::all : optim::DecayOn::matrices});
}

std::unique_ptr<optim::Ema> make_ema(const TrainOptions& options, optim::FlatParameters& parameters) {
  return options.ema > 0 ? std::make_unique<optim::Ema>(parameters, options.ema) : nullptr;
}

std::unique_ptr<optim::LossScale> make_loss_scale(const TrainOptions& options,
                                                  optim::FlatParameters& parameters) {
  return options.precision == DType::f16 ? std::make_unique<optim::LossScale>(parameters) : nullptr;
}

}  // namespace brigade::apps
