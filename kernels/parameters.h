// SPDX-License-Identifier: MIT
// kernels/parameters.h - what a kernel is told beside its tensors: operations, windows, constants of a step. Plain
// values, included by CUDA files. Read next: kernels/kernels.h.
#pragma once

#include <cstdint>

namespace brigade {

/// y = f(x). Functions with a constant go through Binary with a scalar.
enum class Unary : std::uint8_t { neg, abs, exp, log, sqrt, rsqrt, tanh, sigmoid, relu, gelu, logical_not };

/// y = f(a, b). Comparisons write bool. The *_grad rows are derivatives: first the incoming gradient, then
/// the value named (relu, sigmoid, tanh, sqrt, exp: the output y; gelu, log, abs: the input x).
enum class Binary : std::uint8_t {
  add,
  sub,
  mul,
  div,
  min,
  max,
  pow,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  relu_grad,
  sigmoid_grad,
  tanh_grad,
  gelu_grad,
};

/// What a linear layer ends with.
enum class Activation : std::uint8_t { none, relu };

enum class Reduction : std::uint8_t { sum, mean, max, min, prod };

/// Geometry shared by convolution and pooling; index 0 is height, 1 is width.
struct Window {
  std::int64_t kernel[2] = {1, 1};
  std::int64_t stride[2] = {1, 1};
  std::int64_t padding[2] = {0, 0};
  std::int64_t dilation[2] = {1, 1};
  std::int64_t groups = 1;  ///< Convolution only.

  /// floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1 for dim 0 (height) or 1 (width).
  std::int64_t out_size(int dim, std::int64_t in) const {
    return (in + 2 * padding[dim] - dilation[dim] * (kernel[dim] - 1) - 1) / stride[dim] + 1;
  }
};

struct AttentionOptions {
  double scale = 1;     ///< Of the scores q kᵀ.
  bool causal = false;  ///< Position t sees keys 0 … t only.
};

/// What a device decides about a step by itself, so that the host need not wait for it. Both point to memory of the
/// tensors' device, or are null.
struct StepControl {
  const std::int32_t* skip =
      nullptr;  ///< Nothing is written if it is not 0: a gradient had an infinity or a NaN.
  const float* grad_scale = nullptr;  ///< What the loss was multiplied by: gradients are divided by it.
  const float* clip = nullptr;        ///< Gradients are multiplied by it: KernelTable::clip_factor.
  const float* trust = nullptr;  ///< Gradients and weight decay are: KernelTable::trust_ratio, Sgd's alone.
  /// In place of the constants that change from step to step, for a step that is captured once and repeated:
  /// {lr}, and {bias_correction1, bias_correction2}.
  const float *lr = nullptr, *bias_corrections = nullptr;
};

/// Of the trust ratio of LARS (nn/optim/lars.h).
struct TrustConstants {
  double trust, weight_decay;
  const float* clip = nullptr;  ///< StepControl::clip: the gradient counts as it will be used.
};

/// The constants of one optimizer step. The formulas: kernels/functor/optimizer.h.
struct SgdConstants {
  float lr, momentum, dampening, weight_decay;
  bool nesterov, first_step;
  StepControl control{};
};
struct AdamwConstants {
  float lr, beta1, beta2, epsilon, weight_decay;
  float bias_correction1, bias_correction2;  ///< 1 - beta^t
  StepControl control{};
};

/// How the scale of an f16 loss moves (Micikevicius et al., 2018, section 3.2): down at once where a gradient
/// overflowed, up after a long while in which none did.
struct LossScaleConstants {
  float growth = 2, backoff = 0.5f;
  std::int32_t interval = 2000;  ///< Good steps in a row before the scale grows.
};

}  // namespace brigade
