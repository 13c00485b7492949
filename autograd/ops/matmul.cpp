// SPDX-License-Identifier: MIT
// autograd/ops/matmul.cpp - derivatives of matrix products.
#include "autograd/ops/matmul.h"

#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

// [.., D] as [rows, D].
Tensor as_rows(const Tensor& t) {
  const std::int64_t last = t.size(-1);
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < t.dims(); ++d) rows *= t.size(d);
  return ops::reshape(t, {rows, last});
}

}  // namespace

// y = a b   =>   da = dy bᵀ,   db = aᵀ dy, each summed over the batch dims in which the operand was stretched
Variable matmul(const Variable& a, const Variable& b) {
  return record("matmul", ops::matmul(a.value(), b.value()), {a, b},
                [a_kept = save_for(b, a.value()), b_kept = save_for(a, b.value()), a_shape = a.shape(),
                 b_shape = b.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) {
                    const Tensor da = ops::matmul(dy, out.load(b_kept).transpose(-2, -1));
                    out.give(0, ops::sum_to(da, a_shape));
                  }
                  if (out.wanted(1)) {
                    const Tensor db = ops::matmul(out.load(a_kept).transpose(-2, -1), dy);
                    out.give(1, ops::sum_to(db, b_shape));
                  }
                });
}

// y = x wᵀ + b   =>   dx = dy w,   dw = dyᵀ x,   db = sum over rows of dy
Variable linear(const Variable& x, const Variable& w, const Variable& bias) {
  const Tensor y = ops::linear(x.value(), w.value(), value_or_undefined(bias));
  return record("linear", y, {x, w, bias},
                [x_kept = save_for(w, x.value()), w_kept = save_for(x, w.value()), x_shape = x.shape()](
                    const Tensor& dy, Gradients& out) {
                  const Tensor rows = as_rows(dy);
                  if (out.wanted(0)) {
                    const Tensor dx = ops::linear_grad_input(rows, out.load(w_kept));
                    out.give(0, ops::reshape(dx, x_shape));
                  }
                  if (out.wanted(1)) {
                    Tensor dw = out.destination(1);
                    ops::linear_grad_weight(rows, as_rows(out.load(x_kept)), dw);
                    out.give(1, dw);
                  }
                  if (out.wanted(2)) {
                    Tensor db = out.destination(2);
                    ops::bias_grad(rows, db);
                    out.give(2, db);
                  }
                });
}

}  // namespace brigade
