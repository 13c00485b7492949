// SPDX-License-Identifier: MIT
// kernels/ops_device.cpp - what lets a device run ahead of the host: flags and scales that stay on it, and images that
// become floats there.
#include "core/span.h"
#include "kernels/ops_check.h"

namespace brigade::ops {

void flag_non_finite(const Tensor& x, Tensor& flags, std::int64_t index) {
  check_floating("flag_non_finite", x);
  BRIGADE_CHECK(
      flags.defined() && flags.dims() == 1 && flags.dtype() == DType::i32 && flags.device() == x.device(),
      "flag_non_finite: flags must be i32 [n] on ", x.device(), "; got ", flags);
  BRIGADE_CHECK(index >= 0 && index < flags.numel(), "flag_non_finite: index must lie in [0, ", flags.numel(),
                "); got ", index);
  kernels(x.device()).flag_non_finite(x, flags, index);
  flags.bump_version();
}

void clip_factor(double max_norm, const Tensor& squares, Tensor& factor) {
  BRIGADE_CHECK(max_norm > 0, "clip_factor: max_norm must be positive; got ", max_norm);
  check_defined("clip_factor", squares);
  check_one("clip_factor", "squares", squares, DType::f64, squares.device());
  check_one("clip_factor", "factor", factor, DType::f32, squares.device());
  kernels(squares.device()).clip_factor(max_norm, squares, factor);
  factor.bump_version();
}

void trust_ratio(const TrustConstants& k, const Tensor& value_squares, const Tensor& grad_squares,
                 Tensor& ratio) {
  check_defined("trust_ratio", ratio);
  check_one("trust_ratio", "value_squares", value_squares, DType::f64, ratio.device());
  check_one("trust_ratio", "grad_squares", grad_squares, DType::f64, ratio.device());
  check_one("trust_ratio", "ratio", ratio, DType::f32, ratio.device());
  kernels(ratio.device()).trust_ratio(k, value_squares, grad_squares, ratio);
  ratio.bump_version();
}

void update_loss_scale(const LossScaleConstants& k, const Tensor& found, Tensor& scale, Tensor& good_steps) {
  constexpr std::string_view op = "update_loss_scale";
  BRIGADE_CHECK(k.growth >= 1 && k.backoff > 0 && k.backoff <= 1 && k.interval >= 1, op,
                ": growth is at least 1, backoff in (0, 1] and the interval at least 1; got ",
                static_cast<double>(k.growth), ", ", static_cast<double>(k.backoff), ", ", k.interval);
  check_defined(op, scale);
  check_one(op, "found", found, DType::i32, scale.device());
  check_one(op, "scale", scale, DType::f32, scale.device());
  check_one(op, "good_steps", good_steps, DType::i32, scale.device());
  kernels(scale.device()).update_loss_scale(k, found, scale, good_steps);
  scale.bump_version();
  good_steps.bump_version();
}

Tensor augment_images(const Tensor& images, const Tensor& placements, const Tensor& values,
                      std::int64_t cutout, DType dtype, MemoryFormat format) {
  constexpr std::string_view op = "augment_images";
  const Span span(op);
  check_defined(op, images);
  BRIGADE_CHECK(images.dims() == 4 && images.dtype() == DType::u8, op, ": images are u8 [N, C, H, W]; got ",
                images);
  const std::int64_t count = images.size(0), channels = images.size(1);
  BRIGADE_CHECK(
      placements.defined() && placements.shape() == Shape({count, 5}) && placements.dtype() == DType::i32, op,
      ": placements are i32 [", count, ", 5]; got ", placements);
  BRIGADE_CHECK(values.defined() && values.shape() == Shape({channels, 256}) && values.dtype() == DType::f32,
                op, ": values are f32 [", channels, ", 256]; got ", values);
  BRIGADE_CHECK(placements.device() == images.device() && values.device() == images.device(), op,
                ": all must be on ", images.device(), "; got ", placements.device(), " and ",
                values.device());
  BRIGADE_CHECK(cutout >= 0 && is_floating(dtype), op,
                ": needs a cutout of at least 0 and a floating dtype; got ", cutout, " and ", dtype);
  Tensor out = Tensor::empty(images.shape(), dtype, images.device(), format);
  kernels(images.device())
      .augment_images(contiguous(images), contiguous(placements), contiguous(values), cutout, out);
  return out;
}

}  // namespace brigade::ops
