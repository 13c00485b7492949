// SPDX-License-Identifier: MIT
// tests/autograd/gradients.h - leaves to differentiate by, and the one line that checks a derivative.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/grad_check.h"
#include "core/parallel.h"
#include "kernels/ops.h"
#include "tests/support/tensors.h"

namespace brigade::test {

/// An f64 leaf of normal values that requires a gradient.
inline Variable leaf(const Shape& shape, std::uint64_t seed, MemoryFormat format = MemoryFormat::contiguous) {
  return Variable::parameter(random(shape, seed, DType::f64, format));
}

/// The same with values above 0.5: for log, sqrt, powers and divisors.
inline Variable positive_leaf(const Shape& shape, std::uint64_t seed) {
  const Tensor size = ops::unary(Unary::abs, random(shape, seed, DType::f64));
  return Variable::parameter(ops::binary(Binary::add, size, 0.5));
}

/// A leaf with the given values (f64).
inline Variable leaf_of(const std::vector<double>& values, const Shape& shape) {
  return Variable::parameter(Tensor::from(values, shape));
}

/// Empty if the derivative of `function` agrees with central differences, else the worst disagreement.
/// Use: REQUIRE(wrong_gradient(…) == "").
inline std::string wrong_gradient(const std::function<Variable(const std::vector<Variable>&)>& function,
                                  const std::vector<Variable>& inputs) {
  // Thousands of tiny evaluations: waiting for a second thread at the end of each would cost a hundred times
  // the work where other programs use the cores.
  const int threads = num_threads();
  set_num_threads(1);
  const GradCheckResult result = grad_check(function, inputs);
  set_num_threads(threads);
  return result.passed ? "" : result.message;
}

}  // namespace brigade::test
