// SPDX-License-Identifier: MIT
// autograd/ops/loss.h - differentiable softmax and losses.
#pragma once

#include "autograd/variable.h"

namespace brigade {

struct CrossEntropyOptions {
  double label_smoothing = 0;        ///< In [0, 1].
  std::int64_t ignore_index = -100;  ///< Rows with this label count neither in the sum nor in the mean.
};

/// Mean of -log softmax(logits)[label] over rows; logits [R, C], labels i64 [R]. One f32 (f64) element.
/// Throws Error naming sample, label and class count for a label outside [0, C).
Variable cross_entropy(const Variable& logits, const Tensor& labels, const CrossEntropyOptions& options = {});
/// Mean of (x - target)² over all elements.
Variable mse_loss(const Variable& x, const Variable& target);
Variable softmax(const Variable& x);      ///< Over the last dim.
Variable log_softmax(const Variable& x);  ///< Over the last dim.

}  // namespace brigade
