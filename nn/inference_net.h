// SPDX-License-Identifier: MIT
// nn/inference_net.h - runs a folded network, forward only, in f32, bf16 or int8, and finds the scales for int8.
// Read before: nn/folded_net.h, kernels/packed_conv.h.
//
//   const nn::FoldedNet folded = models::fold(model);
//   const nn::InferenceNet exact(folded), half(folded, DType::bf16);
//   const nn::InferenceNet small(folded, nn::calibrate(folded, batches));
//   const Tensor logits = small(images);
//
// int8 is post-training quantisation as in Jacob et al., "Quantization and Training of Neural Networks for Efficient
// Integer-Arithmetic-Only Inference", 2018, with symmetric scales only: weights i8 with one scale for each output
// channel; activations with one scale a tensor, u8 behind a ReLU, i8 elsewhere; sums in 32 bits. Every convolution is
// quantised, the first and the shortcuts too; the mean over pixels and the linear layer compute in f32.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "kernels/packed_conv.h"
#include "nn/folded_net.h"

namespace brigade::nn {

/// For each value of a FoldedNet the magnitude above which int8 may cut it off.
using ValueLimits = std::vector<double>;

struct CalibrationOptions {
  /// Of the magnitudes in one batch, in percent; 100 is their maximum and was the most accurate for ResNet-18 on
  /// CIFAR-10. Less cuts off the few beyond for finer steps below: for networks with rare outliers.
  double percentile = 100;
};

/// Runs `batches` (f32 images as the model takes them) through the network in f32. A value's limit is the largest over
/// the batches of the percentile of its magnitudes. A few hundred images are enough. Throws Error without images, for
/// images that do not fit, and for values that are not finite.
ValueLimits calibrate(const FoldedNet& net, std::span<const Tensor> batches,
                      const CalibrationOptions& options = {});

/// Safe to call on several threads at once; each computes with its own num_threads().
class InferenceNet {
 public:
  /// In f32 or bf16. The network's tensors are shared and must not change.
  explicit InferenceNet(const FoldedNet& net, DType precision = DType::f32);
  /// In int8; `limits` from calibrate() on the same network.
  InferenceNet(const FoldedNet& net, const ValueLimits& limits);

  /// images [N, C, H, W] in any floating dtype and format -> logits f32 [N, classes].
  Tensor operator()(const Tensor& images) const { return run(images, {}); }
  /// Shows each value as soon as it is there; later steps overwrite its memory.
  using Observer = std::function<void(int value, const Tensor& tensor)>;
  Tensor run(const Tensor& images, const Observer& observe) const;

 private:
  struct Step {
    int input, residual;
    bool residual_ends;      // Nobody reads the residual afterwards: its memory may become the result's.
    std::vector<int> ended;  // Values whose last reader this step is.
    Window pool;             // Where there is no convolution.
    std::unique_ptr<PackedConv> conv;
  };

  InferenceNet(const FoldedNet& net, std::vector<DType> dtypes, std::vector<double> scales);
  PackedConvSpec spec_of(const FoldedStep& step, int value) const;
  Tensor prepare(const Tensor& images) const;

  std::vector<DType> dtypes_;   // Of each value.
  std::vector<double> scales_;  // What its units are worth; 1 for floats.
  std::vector<Step> steps_;
  std::int64_t channels_;  // Of images.
  Tensor weight_, bias_;   // Of the linear layer, for a last value in its own units.
};

}  // namespace brigade::nn
