// SPDX-License-Identifier: MIT
// kernels/reference/packed_conv.cpp - the convolution for inference in four plain steps: sum, scale and shift, add, cut
// off below zero. Sums of integers are exact in double, as they are in 32 bits.
#include "kernels/packed_conv.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

// Integers round to nearest even and saturate.
double in_range(double value, DType dtype) {
  if (dtype == DType::u8) return std::clamp(std::nearbyint(value), 0.0, 255.0);
  if (dtype == DType::i8) return std::clamp(std::nearbyint(value), -128.0, 127.0);
  return value;
}

class NaiveConv final : public PackedConv {
 public:
  explicit NaiveConv(const PackedConvSpec& spec)
      : PackedConv(spec), weight_(spec.scale.defined() ? spec.weight : ops::cast(spec.weight, spec.in)) {}

  void run(const Tensor& x, Tensor& out) const override {
    Tensor sums = Tensor::empty(out.shape(), DType::f64);
    conv2d(x, weight_, {}, spec().window, sums);
    const Tensor added = spec().residual ? out.reinterpret(spec().residual->dtype) : Tensor();
    for_each_index(out.shape(), [&](const Dims& i) {
      const double scale = spec().scale.defined() ? get(spec().scale, i[1]) : 1;
      double y = scale * get(sums, i[0], i[1], i[2], i[3]) + get(spec().bias, i[1]);
      if (added.defined()) y += spec().residual->scale * get(added, i[0], i[1], i[2], i[3]);
      if (spec().relu) y = std::max(y, 0.0);
      set(out, in_range(y, out.dtype()), i[0], i[1], i[2], i[3]);
    });
  }

 private:
  Tensor weight_;
};

}  // namespace

bool can_pack_conv2d(DType) { return true; }

std::unique_ptr<PackedConv> pack_conv2d(const PackedConvSpec& spec) {
  return std::make_unique<NaiveConv>(spec);
}

void quantize(const Tensor& x, double scale, Tensor& out) {
  for_each_index(x.shape(), [&](const Dims& i) {
    const auto at = [&](const Tensor& t) { return t.raw() + offset(t, i) * t.item_bytes(); };
    // Divided in f32, as everywhere: a tie must be one for all.
    const float value = *reinterpret_cast<const float*>(at(x)) / static_cast<float>(scale);
    const double rounded = in_range(value, out.dtype());
    dispatch(out.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      *reinterpret_cast<T*>(at(out)) = convert<T>(rounded);
    });
  });
}

}  // namespace brigade::reference
