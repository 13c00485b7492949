// SPDX-License-Identifier: MIT
// autograd/ops/arithmetic.h - differentiable arithmetic with broadcasting. Operands have equal dtypes.
#pragma once

#include "autograd/variable.h"

namespace brigade {

Variable add(const Variable& a, const Variable& b);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable div(const Variable& a, const Variable& b);
Variable add(const Variable& a, double b);
Variable mul(const Variable& a, double b);
Variable pow(const Variable& a, double exponent);
Variable neg(const Variable& a);
/// a where condition (bool, no gradient) else b.
Variable where(const Tensor& condition, const Variable& a, const Variable& b);

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }
inline Variable operator+(const Variable& a, double b) { return add(a, b); }
inline Variable operator-(const Variable& a, double b) { return add(a, -b); }
inline Variable operator*(const Variable& a, double b) { return mul(a, b); }
inline Variable operator*(double a, const Variable& b) { return mul(b, a); }
inline Variable operator/(const Variable& a, double b) { return mul(a, 1.0 / b); }
inline Variable operator-(const Variable& a) { return neg(a); }

}  // namespace brigade
