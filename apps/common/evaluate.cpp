// SPDX-License-Identifier: MIT
// apps/common/evaluate.cpp - see the header.
#include "apps/common/evaluate.h"

#include "autograd/no_grad.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "core/fault_point.h"
#include "core/sha256.h"
#include "data/loader.h"
#include "kernels/late_checks.h"
#include "kernels/ops.h"

namespace brigade::apps {
namespace {

// Left and right exchanged.
Tensor mirrored(const Tensor& images) {
  Tensor out = ops::empty_like(images);
  const std::int64_t width = images.size(3);
  for (std::int64_t x = 0; x < width; ++x) {
    Tensor column = out.slice(3, x, x + 1);
    ops::copy_(column, images.slice(3, width - 1 - x, width - x));
  }
  return out;
}

}  // namespace

EvaluationReport evaluate(nn::Module& model, const data::Dataset& test, const TrainOptions& options,
                          const SamplerPosition& now, dist::ProcessGroup& group) {
  const auto begin = Clock::now();
  group.enter("evaluation");
  const NoGrad no_grad;
  model.eval();
  data::EvaluationLoader loader(
      test, {.batch_size = options.batch_size, .rank = group.rank(), .size = group.size()});
  Tensor counts = Tensor::zeros({2}, DType::i64);  // images, correct
  Tensor loss_sum = Tensor::zeros({1}, DType::f64);
  while (const auto batch = loader.next()) {
    fault_point(FaultAt::evaluation);
    const Tensor images = batch->images.to(group.device()), labels = batch->labels.to(group.device());
    Variable logits = model(images);
    if (options.eval_flip) logits = (logits + model(mirrored(images))) * 0.5;
    const Tensor best = ops::argmax(logits.value(), 1).to({});
    for (std::int64_t i = 0; i < batch->size(); ++i)
      counts.data<std::int64_t>()[1] += best.data<std::int64_t>()[i] == batch->labels.data<std::int64_t>()[i];
    counts.data<std::int64_t>()[0] += batch->size();
    *loss_sum.data<double>() += cross_entropy(logits, labels).item() * static_cast<double>(batch->size());
  }
  model.train();
  if (LateChecks* const labels = LateChecks::of(group.device())) {
    labels->fetch();
    labels->judge();
  }
  const dist::Work first = group.all_reduce(counts, dist::Reduce::sum, "evaluation counts");
  const dist::Work second = group.all_reduce(loss_sum, dist::Reduce::sum, "evaluation loss");
  first.wait();
  second.wait();
  group.enter("between steps");
  const auto values = counts.to_vector<std::int64_t>();
  return {.epoch = now.epoch,
          .step = now.step,
          .images = values[0],
          .correct = values[1],
          .loss = loss_sum.item() / static_cast<double>(values[0]),
          .seconds = std::chrono::duration<double>(Clock::now() - begin).count()};
}

std::string parameters_sha256(const nn::Module& model, dist::ProcessGroup& group) {
  Sha256 sha;
  for (const Variable& p : model.parameters()) sha.update(p.value().to({}));
  const std::string mine = sha.hex();
  for (const std::string& other : group.all_gather_text(mine))
    BRIGADE_CHECK(other == mine, "ranks ended with different parameters: sha256 ", mine, " here, ", other,
                  " elsewhere");
  return mine;
}

}  // namespace brigade::apps
