// SPDX-License-Identifier: MIT
// tests/support/device.h - kernels of the device under test, and the reference beside them, whatever the device. See
// test_device() in tests/support/tensors.h.
#pragma once

#include "kernels/ops.h"
#include "tests/support/tensors.h"

namespace brigade::test {

/// The kernels under test.
inline const KernelTable& fast() { return kernels(test_device()); }

/// reference_kernels() for tensors of test_device(): a slot copies what it is given to the host, with its strides, runs
/// there, and copies back what it may have written.
const KernelTable& reference();

inline Tensor full(const Shape& shape, double value, DType dtype = DType::f32) {
  return ops::full(shape, value, dtype, test_device());
}

}  // namespace brigade::test
