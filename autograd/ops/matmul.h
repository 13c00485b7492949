// SPDX-License-Identifier: MIT
// autograd/ops/matmul.h - differentiable matrix products.
#pragma once

#include "autograd/variable.h"

namespace brigade {

/// [.., M, K] x [.., K, N] -> [.., M, N] with broadcasting batch dims.
Variable matmul(const Variable& a, const Variable& b);
/// y = x wᵀ + bias: x [.., I], w [O, I], bias [O] or undefined. w may be f32 while x is bf16.
Variable linear(const Variable& x, const Variable& w, const Variable& bias);

/// A linear layer whose result went through a ReLU in the memory it was written to, of which the graph does not know
/// yet: relu() records it.
struct LinearBeforeRelu {
  Variable rectified;
};
/// relu(linear_before_relu(x, w, bias)) is relu(linear(x, w, bias)) to the bit, with a tensor less to write. Graph and
/// backward are the same two operations; they are two calls here so that each is recorded by a layer of its own.
LinearBeforeRelu linear_before_relu(const Variable& x, const Variable& w, const Variable& bias);
Variable relu(const LinearBeforeRelu& z);

}  // namespace brigade
