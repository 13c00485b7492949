// SPDX-License-Identifier: MIT
// apps/common/step_runner.cpp - see the header.
#include "apps/common/step_runner.h"

namespace brigade::apps {

StepRunner::StepRunner(const TrainOptions& options, const data::Dataset& images, const Course& course,
                       dist::Ddp& ddp, optim::Optimizer& optimizer, LateChecks& checks)
    : ddp_(ddp),
      optimizer_(optimizer),
      to_device_(ddp.group().device()),
      to_images_(ddp.group().device(), images, loading_for(ddp.group().device(), course.loading)),
      loader_(images, loading_for(ddp.group().device(), course.loading)),
      position_{.global_batch = ddp.group().size() * options.batch_size,
                .accumulate = options.accumulate,
                .samples = images.size()} {
  if (options.cuda_graph) captured_.emplace(ddp, optimizer, checks);
}

data::Batch StepRunner::load() {
  data::Batch batch = loader_.next();
  position_.epoch = batch.epoch;
  position_.sample = batch.end;
  samples_ += batch.size();
  ddp_.set_weight(batch.uneven ? static_cast<double>(samples_) : 1);
  return batch;
}

Tensor StepRunner::run(std::int64_t step, TrainState& state, RunLog& log, const Step& work) {
  const dist::StepScope recorded(ddp_.ledger());  // Layers, optimizer and waiting for data on its timeline.
  position_.step = step;
  samples_ = 0;
  if (!captured_) return work([this] { return to_images_(to_device_(load())); }, [&] { state.update(step); });
  const bool was_captured = captured_->captured();
  const Tensor loss = run_captured(work);
  state.updated(step);
  if (captured_->captured() && !was_captured)
    log.line(str("step ", step, " is captured: from here on a step is one launch"));
  return loss;
}

Tensor StepRunner::run_captured(const Step& work) {
  std::vector<data::Batch> batches;
  for (std::int64_t i = 0; i < position_.accumulate; ++i) batches.push_back(load());
  return captured_->run(batches, [&](const std::vector<data::Batch>& there) {
    std::size_t i = 0;
    return work([&] { return to_images_(there[i++]); }, [&] { optimizer_.step(); });
  });
}

}  // namespace brigade::apps
