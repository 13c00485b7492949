// SPDX-License-Identifier: MIT
// apps/bench/trainer.cpp - see the header.
#include "apps/bench/trainer.h"

#include <algorithm>
#include <utility>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "core/span.h"
#include "data/synthetic.h"
#include "kernels/ops.h"
#include "models/catalog.h"
#include "models/fold.h"
#include "nn/inference_net.h"

namespace brigade::apps {
namespace {

std::unique_ptr<nn::Module> make_model(const TrainerOptions& o) {
  default_generator() = {.seed = 1};
  return models::make_model(
      o.model, {.stem = o.stem, .precision = o.precision, .image = {3, o.image_size, o.image_size}});
}

// As a loader gives them: f32, channels_last.
data::Batch random_batch(const TrainerOptions& o, int rank) {
  Generator generator{.seed = static_cast<std::uint64_t>(rank + 2)};
  const Tensor images = ops::randn({o.batch_size, 3, o.image_size, o.image_size}, generator);
  Tensor labels = Tensor::zeros({o.batch_size}, DType::i64);
  for (std::int64_t i = 0; i < o.batch_size; ++i) labels.data<std::int64_t>()[i] = (i + rank) % 10;
  return {.images = ops::contiguous(images, MemoryFormat::channels_last), .labels = labels};
}

}  // namespace

StepTimes typical(std::vector<StepTimes> steps) {
  std::sort(steps.begin(), steps.end(),
            [](const StepTimes& a, const StepTimes& b) { return a.total < b.total; });
  const std::size_t skipped = steps.size() / 4;
  const std::size_t count = steps.size() - 2 * skipped;
  const double share = 1 / static_cast<double>(count);
  StepTimes mean;
  for (std::size_t i = skipped; i < skipped + count; ++i) {
    const StepTimes& s = steps[i];
    mean.total += share * s.total;
    mean.data += share * s.data;
    mean.forward += share * s.forward;
    mean.backward += share * s.backward;
    mean.optimizer += share * s.optimizer;
    mean.waited += share * s.waited;
    for (const auto& [name, ms] : s.operations) mean.operations[name] += share * ms;
  }
  return mean;
}

Trainer::Trainer(const TrainerOptions& options, dist::ProcessGroup& group)
    : options_(options),
      group_(group),
      model_(make_model(options)),
      to_device_(group.device()),
      checks_(group.device()) {
  model_->to(group.device());
  dist::DdpOptions ddp;
  ddp.check_every = 0;  // Steps without synchronisation let ranks drift apart, and here nobody minds.
  ddp_ = std::make_unique<dist::Ddp>(model_->named_parameters(), model_->named_buffers(), group, ddp);
  optimizer_ = std::make_unique<optim::Sgd>(ddp_->parameters(), 0.001,
                                            optim::SgdOptions{.momentum = 0.9, .weight_decay = 5e-4});
  if (options.loader) {
    images_ = data::make_synthetic(
        {.train = std::max<std::int64_t>(2048, 4 * options.batch_size * group.size()), .test = 1});
    const data::LoaderOptions loading = loading_for(group.device(), {.batch_size = options.batch_size,
                                                                     .rank = group.rank(),
                                                                     .size = group.size(),
                                                                     .augment = data::standard_augment()});
    loader_ = std::make_unique<data::Loader>(images_.train, loading);
    to_images_.emplace(group.device(), images_.train, loading);
  } else {
    batch_ = to_device_(random_batch(options, group.rank()));
  }
  if (options.cuda_graph) captured_ = std::make_unique<CapturedStep>(*ddp_, *optimizer_, checks_);
}

data::Batch Trainer::next() {
  if (!loader_) return batch_;
  return captured_ ? loader_->next() : to_device_(loader_->next());
}

Tensor Trainer::compute(const data::Batch& batch, Synchronise synchronise, StepTimes& times) {
  const auto begin = Clock::now();
  ddp_->parameters().zero_grad();
  const data::Batch ready = to_images_ ? (*to_images_)(batch) : batch;
  const Variable loss = cross_entropy((*model_)(ready.images), ready.labels);
  checks_.judge();
  checks_.fetch();
  const auto forward_end = Clock::now();
  if (synchronise == Synchronise::yes) {
    backward(loss);
  } else {
    const auto local = ddp_->no_sync();
    backward(loss);
  }
  const auto backward_end = Clock::now();
  optimizer_->step();
  times.forward = dist::milliseconds(forward_end - begin);
  times.backward = dist::milliseconds(backward_end - forward_end);
  times.optimizer = dist::milliseconds(Clock::now() - backward_end);
  return loss.value();
}

StepTimes Trainer::step(Synchronise synchronise) {
  SpanTotals operations;
  const SpanListener listen(operations);
  const bool on_device = group_.device() != Device{};
  if (group_.size() > 1 && !on_device) group_.barrier().wait();
  StepTimes times;
  const auto begin = Clock::now();
  const data::Batch batch = next();
  times.data = dist::milliseconds(Clock::now() - begin);
  if (captured_ && synchronise == Synchronise::yes) {
    captured_->run({batch}, [&](const std::vector<data::Batch>& there) {
      return compute(there.front(), synchronise, times);
    });
    // All that the host does for such a step, which has no parts.
    if (captured_->repeated()) times.forward = dist::milliseconds(Clock::now() - begin) - times.data;
  } else {
    compute(captured_ ? to_device_(batch) : batch, synchronise, times);
  }
  if (on_device)
    std::exchange(last_, runtime(group_.device()).current_stream().record()).wait();
  else if (group_.size() > 1)
    group_.barrier().wait();
  times.total = dist::milliseconds(Clock::now() - begin);
  if (synchronise == Synchronise::yes)
    for (const dist::BucketRecord& bucket : ddp_->ledger().last().buckets)
      times.waited += dist::milliseconds(bucket.waited);
  for (const auto& [name, total] : operations.totals())
    times.operations[name] = dist::milliseconds(total.self);
  return times;
}

std::function<void()> make_inference(const TrainerOptions& options) {
  const Tensor images = random_batch(options, 0).images;
  const bool is_int8 = options.precision == DType::i8;
  TrainerOptions floating = options;
  if (is_int8) floating.precision = DType::f32;
  const std::shared_ptr<nn::Module> model = make_model(floating);
  if (is_int8 || options.model.starts_with("resnet")) {
    const nn::FoldedNet folded = models::fold(*model);
    const auto net = is_int8 ? std::make_shared<nn::InferenceNet>(folded, nn::calibrate(folded, {&images, 1}))
                             : std::make_shared<nn::InferenceNet>(folded, options.precision);
    return [net, images] { (*net)(images); };
  }
  model->eval();
  return [model, images] {
    const NoGrad no_grad;
    (*model)(images);
  };
}

}  // namespace brigade::apps
