// SPDX-License-Identifier: MIT
// autograd/ops/support.h - what several operations share: optional inputs, and keeping no more than backward
// needs. Read before: autograd/node.h.
#pragma once

#include "autograd/node.h"

namespace brigade {

/// The value of an input that may be left out (a bias): undefined tensor for an undefined variable.
inline Tensor value_or_undefined(const Variable& v) { return v.defined() ? v.value() : Tensor(); }

/// Keeps `t` for backward only if `v`, the input whose gradient is computed from it, needs one: a frozen
/// weight then costs no activation memory, and a tensor that backward never reads may be modified in place.
inline SavedTensor save_for(const Variable& v, const Tensor& t) {
  return v.requires_grad() ? SavedTensor(t) : SavedTensor();
}

}  // namespace brigade
