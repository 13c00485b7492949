// SPDX-License-Identifier: MIT
// autograd/checkpoint.h - activation checkpointing: trade a second forward for the memory of activations
// (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once

#include <functional>

#include "autograd/variable.h"

namespace brigade {

/// Computes `segment(x)` without keeping what is inside; backward computes it
/// again, with the same random numbers.
///
/// Parameters that `segment` uses receive one contribution each from the whole segment through the
/// outer backward, so their post-accumulate hooks still fire once, whatever else uses them. `segment`
/// must be a function of x, parameters and random numbers; state it changes (running statistics) must
/// be guarded with is_recomputing().
Variable checkpoint(const std::function<Variable(const Variable&)>& segment, const Variable& x);

/// True inside the second run: side effects of the first (batch norm's running statistics) must not repeat.
bool is_recomputing();

}  // namespace brigade
