// SPDX-License-Identifier: MIT
// apps/common/captured_step.h - --cuda-graph: a training step whose work on the device is recorded once, after some
// steps have run as they are, and then repeated: the host launches one graph instead of some hundred kernels, and does
// what belongs to it (the roll call, the ledger, the learning rate) around that.
// Read before: core/graph.h, dist/ddp.h (repeat), nn/optim/optimizer.h (repeat).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/device_batches.h"
#include "core/graph.h"
#include "dist/ddp.h"
#include "kernels/late_checks.h"
#include "nn/optim/optimizer.h"

namespace brigade::apps {

/// Why steps of `group` cannot be captured, in words; empty if they can.
std::string why_not_captured(const dist::ProcessGroup& group);

/// All ranks make the same calls, and their batches have the same sizes.
class CapturedStep {
 public:
  /// Steps before the capture: libraries choose their algorithms, and every parameter has had its first update.
  static constexpr int kWarmUp = 3;

  /// All must outlive it. Throws Error where why_not_captured().
  CapturedStep(dist::Ddp& ddp, optim::Optimizer& optimizer, LateChecks& checks);

  /// From zeroed gradients to the optimizer's update; returns the loss, on the device. Waits for nothing.
  using Step = std::function<Tensor(const std::vector<data::Batch>& batches)>;
  /// Does `step` on batches of the host, or on those that lie on the device for good: as it is, or by a repetition
  /// where their shapes are those of the capture. Which they are not for batches that are uneven between ranks: those
  /// steps run as they are. Does not wait for the device, but for the verdict on the step before: Ddp::repeat().
  Tensor run(const std::vector<data::Batch>& batches, const Step& step);

  bool captured() const { return graph_ != nullptr; }
  /// The last step was launched as a graph: step() was not called, or its work recorded first.
  bool repeated() const { return repeated_; }

 private:
  bool fits(const std::vector<data::Batch>& batches) const;
  bool is_there(const data::Batch& batch) const { return batch.images.device() == ddp_.group().device(); }
  void record(const Step& step);
  void launch();

  dist::Ddp& ddp_;
  optim::Optimizer& optimizer_;
  LateChecks& checks_;
  DeviceBatches to_device_;
  int steps_ = 0;
  bool repeated_ = false;
  std::vector<data::Batch> inputs_;  // Where the graph finds its batches.
  std::vector<LateChecks::Check> found_;
  Tensor loss_;
  std::unique_ptr<Graph> graph_;  // Last: it goes first.
};

}  // namespace brigade::apps
