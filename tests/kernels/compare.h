// SPDX-License-Identifier: MIT
// tests/kernels/compare.h - what the tests of structured kernels share: inputs,
// tolerances, comparison with the oracle.
#pragma once

#include <cmath>
#include <string>

#include "tests/support/device.h"

namespace brigade::test {

inline constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};

/// The dtype of parameters and statistics beside activations of `dtype`.
inline DType parameter_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Random weights beside activations of `dtype`. They are representable in it, so that a kernel that converts
/// them loses nothing and a test may ask for more than the dtype's precision.
inline Tensor weights(const Shape& shape, std::uint64_t seed, DType dtype) {
  return ops::cast(random(shape, seed, dtype), parameter_dtype(dtype));
}

inline double rms(const Tensor& t) {
  return std::sqrt(ops::sum_of_squares(t) / static_cast<double>(t.numel()));
}

/// differs() with an error allowed relative to the rms of `expected`: rounding errors of a sum scale with its
/// terms, not with its value, which may be near zero.
inline std::string far_from(const Tensor& got, const Tensor& expected, double tolerance) {
  const bool rounded = got.dtype() == DType::bf16 || got.dtype() == DType::f16;
  // A stored 16-bit result differs from the oracle's by one unit in the last place where sums straddle a tie.
  return differs(got, expected, rounded ? 0x1p-7 : tolerance, tolerance * rms(expected));
}

}  // namespace brigade::test
