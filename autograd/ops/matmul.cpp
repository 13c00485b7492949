// SPDX-License-Identifier: MIT
// autograd/ops/matmul.cpp - derivatives of matrix products.
#include "autograd/ops/matmul.h"

#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {

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

namespace {

// y = x wᵀ + b   =>   dx = dy w,   dw = dyᵀ x,   db = sum over rows of dy
Variable linear_then(Activation then, const Variable& x, const Variable& w, const Variable& bias) {
  const Tensor y = ops::linear(x.value(), w.value(), value_or_undefined(bias), then);
  return record(
      "linear", y, {x, w, bias},
      [x_kept = save_for(w, x.value()), w_kept = save_for(x, w.value())](const Tensor& dy, Gradients& out) {
        if (out.wanted(0)) out.give(0, ops::linear_grad_input(dy, out.load(w_kept)));
        if (out.wanted(1)) {
          Tensor dw = out.destination(1);
          ops::linear_grad_weight(dy, out.load(x_kept), dw);
          out.give(1, dw);
        }
        if (out.wanted(2)) {
          Tensor db = out.destination(2);
          // Four dims would be taken for an image, whose channels are dim 1; any other number are rows.
          const bool looks_like_image = dy.dims() == 4;
          ops::bias_grad(
              looks_like_image ? ops::reshape(dy, {dy.size(0) * dy.size(1), dy.size(2), dy.size(3)}) : dy,
              db);
          out.give(2, db);
        }
      });
}

}  // namespace

Variable linear(const Variable& x, const Variable& w, const Variable& bias) {
  return linear_then(Activation::none, x, w, bias);
}

LinearBeforeRelu linear_before_relu(const Variable& x, const Variable& w, const Variable& bias) {
  return {linear_then(Activation::relu, x, w, bias)};
}

// y = max(z, 0)   =>   dz = dy where y > 0, else 0: z itself is not needed
Variable relu(const LinearBeforeRelu& z) {
  const Tensor y = z.rectified.value();
  return record("relu", y, {z.rectified}, [y_kept = SavedTensor(y)](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, ops::binary(Binary::relu_grad, dy, out.load(y_kept)));
  });
}

}  // namespace brigade
