// SPDX-License-Identifier: MIT
// tests/support/tensors.h - making and comparing tensors in tests.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace brigade::test {

/// Where tests of kernels compute: the environment's BRIGADE_TEST_DEVICE, cpu (as without it) or cuda. The tensors that
/// the functions below make are there.
Device test_device();

/// Normal values, a function of (shape, seed) only; integers are drawn from [-4, 4] (unsigned: [0, 4], bool: both).
Tensor random(const Shape& shape, std::uint64_t seed, DType dtype = DType::f32,
              MemoryFormat format = MemoryFormat::contiguous);

inline Tensor empty(const Shape& shape, DType dtype = DType::f32,
                    MemoryFormat format = MemoryFormat::contiguous) {
  return Tensor::empty(shape, dtype, test_device(), format);
}
template <class T>
Tensor from(const std::vector<T>& list, const Shape& shape) {
  return Tensor::from(list, shape).to(test_device());
}

/// Elements in row-major order as doubles, any dtype and strides.
std::vector<double> values(const Tensor& t);

/// Empty if equal in shape and |a - b| <= absolute + relative |b| everywhere (NaN equals NaN); else one line that
/// names the worst element. Use: REQUIRE(differs(y, expected, 1e-6) == "").
std::string differs(const Tensor& a, const Tensor& b, double relative, double absolute = 0);

/// differs() with no tolerance, on the bits of the values.
std::string differs_bitwise(const Tensor& a, const Tensor& b);

}  // namespace brigade::test
