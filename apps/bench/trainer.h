// SPDX-License-Identifier: MIT
// apps/bench/trainer.h - training steps and forwards with a watch on every phase. Read before: core/span.h, dist/ddp.h.
// Used by bench_train.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/captured_step.h"
#include "apps/common/device_batches.h"
#include "data/loader.h"
#include "dist/ddp.h"
#include "nn/optim/sgd.h"

namespace brigade::apps {

struct TrainerOptions {
  std::string model = "resnet18", stem = "cifar";
  DType precision = DType::f32;
  std::int64_t batch_size = 32;  ///< Per rank.
  std::int64_t image_size = 32;
  bool cuda_graph = false;  ///< apps/common/captured_step.h
  bool loader =
      false;  ///< Batches of generated CIFAR through data::Loader, instead of random numbers in memory.
};

/// One step, in milliseconds.
struct StepTimes {
  double total = 0, data = 0, forward = 0, backward = 0, optimizer = 0;
  double waited = 0;  ///< Part of backward: the compute thread stood still for a bucket.
  /// By operation (ops of kernels/ops.h), without operations inside; forward and backward together.
  std::map<std::string, double> operations = {};
};

/// Means over the middle half of steps by total time: phases still add up, and outliers do not count.
StepTimes typical(std::vector<StepTimes> steps);

/// A model, its data and its optimizer, on one rank of `group`.
class Trainer {
 public:
  Trainer(const TrainerOptions& options, dist::ProcessGroup& group);

  enum class Synchronise { yes, no };
  /// From barrier to barrier if there are several ranks: a step ends when the slowest has. On a device: from the end of
  /// the step before the last to that of the last one, because the host is a step ahead of it, as in training; phases
  /// are the host's.
  StepTimes step(Synchronise synchronise = Synchronise::yes);

  dist::GradientMemory gradient_memory() const { return ddp_->gradient_memory(); }

 private:
  data::Batch next();
  Tensor compute(const data::Batch& batch, Synchronise synchronise, StepTimes& times);

  TrainerOptions options_;
  dist::ProcessGroup& group_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<dist::Ddp> ddp_;
  std::unique_ptr<optim::Sgd> optimizer_;
  data::Split images_;
  std::unique_ptr<data::Loader> loader_;
  data::Batch batch_;
  DeviceBatches to_device_;
  std::optional<DeviceImages> to_images_;  // Of a loader's batches.
  LateChecks checks_;
  std::unique_ptr<CapturedStep> captured_;
  Event last_;  // The end of the step before, on a device.
};

/// A model in evaluation mode; calls run one forward without gradients on random images. Residual networks run folded
/// (nn/inference_net.h), others as in training. precision may be i8, for int8.
std::function<void()> make_inference(const TrainerOptions& options);

}  // namespace brigade::apps
