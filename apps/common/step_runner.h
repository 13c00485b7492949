// SPDX-License-Identifier: MIT
// apps/common/step_runner.h - where the batches of a step come from, and how its work reaches a device: piece by piece,
// or with --cuda-graph as one. Read before: apps/common/device_batches.h, apps/common/captured_step.h.
#pragma once

#include <functional>
#include <optional>

#include "apps/common/captured_step.h"
#include "apps/common/device_batches.h"
#include "apps/common/run_log.h"
#include "apps/common/train_state.h"

namespace brigade::apps {

/// All ranks make the same calls.
class StepRunner {
 public:
  /// All must outlive it. Begins to load batches. Throws Error for what a Loader refuses, and where --cuda-graph is not
  /// possible.
  StepRunner(const TrainOptions& options, const data::Dataset& images, const Course& course, dist::Ddp& ddp,
             optim::Optimizer& optimizer, LateChecks& checks);

  /// From zeroed gradients to update(), over --accumulate batches that next() brings to the device; returns the loss,
  /// there.
  using Step =
      std::function<Tensor(const std::function<data::Batch()>& next, const std::function<void()>& update)>;
  /// Does optimizer step number `step` and its share of a checkpoint. A device is not waited for.
  Tensor run(std::int64_t step, TrainState& state, RunLog& log, const Step& work);

  /// Behind the last step.
  const SamplerPosition& position() const { return position_; }

 private:
  data::Batch load();
  Tensor run_captured(const Step& work);

  dist::Ddp& ddp_;
  optim::Optimizer& optimizer_;
  DeviceBatches to_device_;
  DeviceImages to_images_;
  data::Loader loader_;
  SamplerPosition position_;
  std::int64_t samples_ = 0;  // Of this rank, in this step.
  std::optional<CapturedStep> captured_;
};

}  // namespace brigade::apps
