// SPDX-License-Identifier: MIT
// dist/ready_order.h - the order in which one backward finishes gradients: what bucket order "ready" is made of.
// Read before: autograd/variable.h (BackwardObserver). Read next: dist/plan_makers.h.
#pragma once

#include <functional>
#include <vector>

#include "dist/process_group.h"
#include "nn/module.h"

namespace brigade::dist {

/// Runs `forward_and_backward` once, before the parameters belong to a Ddp, and returns the order in which gradients
/// became final: indices into the trainable ones of `parameters`, for PlanOptions::observed. Those that took no part
/// follow, in reverse. Every rank gets what rank 0 observed. Collective; blocks.
///
/// Nothing else remains of the run: `buffers` and default_generator() are put back and gradients forgotten, also if it
/// throws. Throws Error if a parameter has an observer already, and what `forward_and_backward` throws.
std::vector<int> observe_ready_order(const std::vector<nn::NamedParameter>& parameters,
                                     const std::vector<nn::NamedBuffer>& buffers, ProcessGroup& group,
                                     const std::function<void()>& forward_and_backward);

}  // namespace brigade::dist
