// SPDX-License-Identifier: MIT
// autograd/ops/pointwise.h - differentiable functions of one variable, element by element.
#pragma once

#include "autograd/variable.h"

namespace brigade {

Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable sqrt(const Variable& x);
Variable abs(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
Variable relu(const Variable& x);
/// x Φ(x) with the exact error function (Hendrycks and Gimpel, 2016), as PyTorch's default.
Variable gelu(const Variable& x);
/// Zeroes each element with probability p and scales the rest by 1 / (1 - p); random numbers from default_generator().
Variable dropout(const Variable& x, double p);

}  // namespace brigade
