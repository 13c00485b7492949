// SPDX-License-Identifier: MIT
// autograd/ops/support.h - what several operations share: optional inputs, and keeping no more than backward
// needs. Read before: autograd/node.h.
#pragma once

#include "autograd/node.h"
#include "kernels/ops.h"

namespace brigade {

/// The value of an input that may be left out (a bias): undefined tensor for an undefined variable.
inline Tensor value_or_undefined(const Variable& v) { return v.defined() ? v.value() : Tensor(); }

/// Keeps `t` for backward only if `v`, the input whose gradient is computed from it, needs one: a frozen
/// weight then costs no activation memory, and a tensor that backward never reads may be modified in place.
inline SavedTensor save_for(const Variable& v, const Tensor& t) {
  return v.requires_grad() ? SavedTensor(t) : SavedTensor();
}

/// Memory for a gradient laid out like `like`, of dy's shape, that an elementwise kernel writes: dy's own where nobody
/// else can see it. That costs no memory, and lines that were just read need not be fetched again to be written.
inline Tensor over_or_empty(const Tensor& dy, const Tensor& like) {
  const bool fits = dy.dtype() == like.dtype() && dy.is_contiguous(like.memory_format());
  return fits && dy.storage().sole_owner() ? dy : ops::empty_like(like);
}

}  // namespace brigade
