// SPDX-License-Identifier: MIT
// autograd/ops/loss.cpp - derivatives of softmax and losses.
#include "autograd/ops/loss.h"

#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {

// loss = mean over counted rows of -Σ target log p   =>   dlogits = dloss (p - target) / counted rows, 0 in
// ignored rows where p = softmax(logits), target = (1 - s) one_hot(label) + s / C. Softmax and log are
// differentiated together: p - target has no division and no log, so nothing overflows.
Variable cross_entropy(const Variable& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const ops::CrossEntropy forward =
      ops::cross_entropy(logits.value(), labels, options.label_smoothing, options.ignore_index);
  return record("cross_entropy", forward.loss, {logits},
                [forward, labels_kept = SavedTensor(labels), options, dtype = logits.dtype()](
                    const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  out.give(0, ops::cross_entropy_grad(dy, forward, out.load(labels_kept),
                                                      options.label_smoothing, options.ignore_index, dtype));
                });
}

// loss = 1/n Σ (x - t)²   =>   dx = 2/n dloss (x - t),   dt = -dx
Variable mse_loss(const Variable& x, const Variable& target) {
  // No broadcasting here: [N, 1] against [N] would silently compare every pair.
  BRIGADE_CHECK(x.shape() == target.shape(), "mse_loss: x and target must have equal shapes; got x ",
                x.shape(), " and target ", target.shape());
  const Tensor difference = ops::sub(x.value(), target.value());
  const Tensor loss = ops::reduce(Reduction::mean, ops::mul(difference, difference));
  return record("mse_loss", loss, {x, target}, [difference](const Tensor& dy, Gradients& out) {
    const double scale = 2.0 / static_cast<double>(difference.numel());
    const Tensor dx = ops::mul(difference, ops::mul(dy, scale));
    if (out.wanted(0)) out.give(0, dx);
    if (out.wanted(1)) out.give(1, ops::unary(Unary::neg, dx));
  });
}

// y = softmax(x)   =>   dx = y (dy - Σ dy y)
Variable softmax(const Variable& x) {
  const Tensor y = ops::softmax(x.value());
  return record("softmax", y, {x}, [y_kept = SavedTensor(y)](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, ops::softmax_grad(dy, out.load(y_kept)));
  });
}

// y = log softmax(x)   =>   dx = dy - eʸ Σ dy
Variable log_softmax(const Variable& x) {
  const Tensor y = ops::log_softmax(x.value());
  return record("log_softmax", y, {x}, [y_kept = SavedTensor(y)](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, ops::log_softmax_grad(dy, out.load(y_kept)));
  });
}

}  // namespace brigade
