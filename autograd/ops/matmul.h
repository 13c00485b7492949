// SPDX-License-Identifier: MIT
// autograd/ops/matmul.h - differentiable matrix products.
#pragma once

#include "autograd/variable.h"

namespace brigade {

/// [.., M, K] x [.., K, N] -> [.., M, N] with broadcasting batch dims.
Variable matmul(const Variable& a, const Variable& b);
/// y = x wᵀ + bias: x [.., I], w [O, I], bias [O] or undefined. w may be f32 while x is bf16.
Variable linear(const Variable& x, const Variable& w, const Variable& bias);

}  // namespace brigade
