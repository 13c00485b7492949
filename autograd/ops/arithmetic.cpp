// SPDX-License-Identifier: MIT
// autograd/ops/arithmetic.cpp - derivatives of broadcasting arithmetic. An operand that was stretched
// receives the sum over the positions it was stretched to (ops::sum_to).
#include "autograd/ops/arithmetic.h"

#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {

// y = a + b   =>   da = dy,   db = dy
Variable add(const Variable& a, const Variable& b) {
  return record("add", ops::add(a.value(), b.value()), {a, b},
                [a_shape = a.shape(), b_shape = b.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::sum_to(dy, a_shape));
                  if (out.wanted(1)) out.give(1, ops::sum_to(dy, b_shape));
                });
}

// y = a - b   =>   da = dy,   db = -dy
Variable sub(const Variable& a, const Variable& b) {
  return record("sub", ops::sub(a.value(), b.value()), {a, b},
                [a_shape = a.shape(), b_shape = b.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::sum_to(dy, a_shape));
                  // Summed first: the negation then touches the smaller tensor.
                  if (out.wanted(1)) out.give(1, ops::unary(Unary::neg, ops::sum_to(dy, b_shape)));
                });
}

// y = a b   =>   da = dy b,   db = dy a
Variable mul(const Variable& a, const Variable& b) {
  return record("mul", ops::mul(a.value(), b.value()), {a, b},
                [a_kept = save_for(b, a.value()), b_kept = save_for(a, b.value()), a_shape = a.shape(),
                 b_shape = b.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::sum_to(ops::mul(dy, out.load(b_kept)), a_shape));
                  if (out.wanted(1)) out.give(1, ops::sum_to(ops::mul(dy, out.load(a_kept)), b_shape));
                });
}

// y = a / b   =>   da = dy / b,   db = -dy a / b² = -(dy / b) y
Variable div(const Variable& a, const Variable& b) {
  const Tensor y = ops::div(a.value(), b.value());
  return record("div", y, {a, b},
                [b_kept = SavedTensor(b.value()), y_kept = save_for(b, y), a_shape = a.shape(),
                 b_shape = b.shape()](const Tensor& dy, Gradients& out) {
                  const Tensor ratio = ops::div(dy, out.load(b_kept));
                  if (out.wanted(0)) out.give(0, ops::sum_to(ratio, a_shape));
                  if (out.wanted(1)) {
                    const Tensor db = ops::sum_to(ops::mul(ratio, out.load(y_kept)), b_shape);
                    out.give(1, ops::unary(Unary::neg, db));
                  }
                });
}

// y = a + constant   =>   da = dy
Variable add(const Variable& a, double b) {
  return record("add", ops::binary(Binary::add, a.value(), b), {a}, [](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, dy);
  });
}

// y = constant a   =>   da = constant dy
Variable mul(const Variable& a, double b) {
  return record("mul", ops::mul(a.value(), b), {a}, [b](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, ops::mul(dy, b));
  });
}

// y = aᵉ   =>   da = dy e aᵉ⁻¹
Variable pow(const Variable& a, double exponent) {
  return record("pow", ops::binary(Binary::pow, a.value(), exponent), {a},
                [a_kept = SavedTensor(a.value()), exponent](const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  const Tensor x = out.load(a_kept);
                  // a⁰ is constant, also at a = 0 where the formula reads 0 · ∞.
                  if (exponent == 0) return out.give(0, ops::mul(dy, 0.0));
                  const Tensor slope = ops::mul(ops::binary(Binary::pow, x, exponent - 1), exponent);
                  out.give(0, ops::mul(dy, slope));
                });
}

// y = -a   =>   da = -dy
Variable neg(const Variable& a) {
  return record("neg", ops::unary(Unary::neg, a.value()), {a}, [](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, ops::unary(Unary::neg, dy));
  });
}

// y = a where condition else b   =>   da = dy where condition else 0,   db = 0 where condition else dy
Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  return record("where", ops::where(condition, a.value(), b.value()), {a, b},
                [kept = SavedTensor(condition), a_shape = a.shape(), b_shape = b.shape()](const Tensor& dy,
                                                                                          Gradients& out) {
                  const Tensor chosen = out.load(kept);
                  const Tensor zero = ops::full(Shape(), 0, dy.dtype(), dy.device());
                  if (out.wanted(0)) out.give(0, ops::sum_to(ops::where(chosen, dy, zero), a_shape));
                  if (out.wanted(1)) out.give(1, ops::sum_to(ops::where(chosen, zero, dy), b_shape));
                });
}

}  // namespace brigade
