// SPDX-License-Identifier: MIT
// kernels/cpu/quantize.cpp - from floats to eight-bit integers.
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "kernels/cpu/structured.h"

namespace brigade::cpu {

namespace {

template <class T>
void quantize(const float* x, float scale, std::int64_t count, T* out) {
  constexpr float kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  parallel_for(count, 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float value = x[i] / scale;
      // In this order a NaN becomes the lowest value instead of undefined behaviour.
      const float above = value > kLow ? value : kLow, inside = above < kHigh ? above : kHigh;
      out[i] = static_cast<T>(std::nearbyint(inside));
    }
  });
}

}  // namespace

void quantize(const Tensor& x, double scale, Tensor& out) {
  const auto unit = static_cast<float>(scale);
  if (out.dtype() == DType::u8)
    quantize(x.data<float>(), unit, x.numel(), out.data<std::uint8_t>());
  else
    quantize(x.data<float>(), unit, x.numel(), out.data<std::int8_t>());
}

}  // namespace brigade::cpu
