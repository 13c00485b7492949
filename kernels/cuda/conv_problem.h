// SPDX-License-Identifier: MIT
// kernels/cuda/conv_problem.h - a convolution as a key: everything that its algorithm is chosen for, and no address.
// Read next: kernels/cuda/cudnn.h.
#pragma once

#include <array>
#include <compare>
#include <string>

#include "kernels/kernels.h"

namespace brigade::cuda {

enum class ConvPass : std::uint8_t { forward, grad_input, grad_weight };

/// Sizes in logical order: x [N, C, H, W], w [O, C / groups, kH, kW], y [N, O, oH, oW].
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  DType dtype = DType::f32;                        ///< Of x, w and y alike.
  MemoryFormat format = MemoryFormat::contiguous;  ///< Of x, w and y alike: NCHW and OIHW, or NHWC and OHWI.
  std::array<std::int64_t, 4> x{}, w{}, y{};
  std::array<std::int64_t, 2> stride{}, padding{}, dilation{};
  std::int64_t groups = 1;
  bool tf32 = false;   ///< f32 only: factors may be rounded.
  bool timed = false;  ///< Whether algorithms are timed to choose one.

  friend auto operator<=>(const ConvProblem&, const ConvProblem&) = default;
};

/// With the settings of kernels/cuda/settings.h.
ConvProblem conv_problem(ConvPass pass, DType dtype, MemoryFormat format, const Shape& x, const Shape& w,
                         const Shape& y, const Window& window);

/// "conv2d", "conv2d_grad_input" or "conv2d_grad_weight", as in kernels/kernels.h.
const char* name(ConvPass pass);
/// "bf16 channels_last x [8, 3, 32, 32], weight [64, 3, 3, 3], stride 1 x 1, …"
void append_text(std::string& out, const ConvProblem& problem);

}  // namespace brigade::cuda
