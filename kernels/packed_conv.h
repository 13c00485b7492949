// SPDX-License-Identifier: MIT
// kernels/packed_conv.h - convolution for inference: the weights stay as they are, so they are brought into the layout
// of the device once, and what follows a convolution in a network (bias, residual, ReLU, rounding to int8) is done
// while its sums are still in registers. Made by ops::pack_conv2d, run by ops::packed_conv2d.
// Read before: kernels/kernels.h. Read next: nn/inference_net.h.
#pragma once

#include <optional>

#include "kernels/kernels.h"

namespace brigade {

/// What is added to a convolution's result.
struct PackedResidual {
  DType dtype = DType::f32;  ///< Of elements as large as the output's.
  double scale = 1;          ///< What one unit of it is worth in units of the output.
};

/// out = relu(scale sum(x w) + bias + residual), computed in f32 and rounded once; saturated where `out` is an integer.
///
/// Floating: `in` and `out` are both f32 or both bf16, weights f32 (rounded to `in`), no scale.
/// int8: `in` is u8 or i8, `out` u8, i8 or f32, weights i8; sums of products are i32. What a unit of each tensor is
/// worth is for the caller to know: `scale`, `bias` and `residual` are in units of the output.
struct PackedConvSpec {
  Tensor weight;  ///< [O, C / groups, kH, kW]; not to be changed as long as the convolution lives.
  Tensor bias;    ///< f32 [O]
  Window window{};
  DType in = DType::f32, out = DType::f32;
  bool relu = false;
  std::optional<PackedResidual> residual{};
  Tensor scale{};  ///< f32 [O], positive: one unit of the sum in units of the output. Undefined for floats.
};

/// Safe to run on several threads at once.
class PackedConv {
 public:
  explicit PackedConv(PackedConvSpec spec) : spec_(std::move(spec)) {}
  virtual ~PackedConv() = default;
  PackedConv(const PackedConv&) = delete;
  PackedConv& operator=(const PackedConv&) = delete;

  const PackedConvSpec& spec() const { return spec_; }

  /// x and out channels_last. With a residual `out` holds it beforehand, as elements of its dtype.
  virtual void run(const Tensor& x, Tensor& out) const = 0;

 private:
  PackedConvSpec spec_;
};

}  // namespace brigade
