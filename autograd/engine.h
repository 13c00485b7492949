// SPDX-License-Identifier: MIT
// autograd/engine.h - runs a graph backwards.
//
// The engine counts, before it starts, how many contributions each operation and each leaf will receive, and
// runs an operation when its count is complete; among the ready ones, the latest recorded first. The order is
// thus a function of the graph alone: every rank that builds the same graph sees gradients become ready in
// the same order. Read before: autograd/node.h. Read next: dist/ddp.h, which listens.
#pragma once

#include <functional>
#include <vector>

#include "autograd/variable.h"

namespace brigade {

struct BackwardOptions {
  Tensor gradient = {};       ///< Of the result; one if it has a single element and this is undefined.
  bool retain_graph = false;  ///< Keep the graph for a second backward.
};

/// Adds the gradient of `root` to every reachable leaf that requires one. Blocks until all hooks and
/// callbacks ran. Order for a leaf: tensor hooks on each contribution; accumulation; after the last, its
/// post-accumulate hooks, then its observer. Then after_backward callbacks, then the observers'
/// after_backward(). Throws Error if root has no graph, if the graph was freed, if a saved tensor was
/// modified in place, or if gradients do not fit in shape.
void backward(const Variable& root, const BackwardOptions& options = {});

/// The gradients of `root` with respect to `inputs` (any variables), as tensors; undefined where unreachable.
/// The inputs count as independent of each other: nothing flows through one to another. Touches no grad(),
/// fires no hook of a leaf and no observer.
std::vector<Tensor> grad(const Variable& root, const std::vector<Variable>& inputs,
                         const BackwardOptions& options = {});

/// Runs `callback` once, at the end of the backward that is running on this thread (call it from a hook).
/// Throws Error outside a backward.
void after_backward(std::function<void()> callback);

}  // namespace brigade
