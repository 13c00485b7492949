// SPDX-License-Identifier: MIT
// autograd/ops/norm.h - differentiable normalisation.
#pragma once

#include <functional>

#include "autograd/variable.h"

namespace brigade {

/// Statistics a batch norm keeps across steps; plain tensors [C], changed in place.
struct RunningStats {
  Tensor mean, var;  ///< Both undefined: not tracked.
};

/// Normalises with the batch's statistics (biased variance) and updates `running` (unbiased variance):
/// running = (1 - momentum) running + momentum batch. Ioffe and Szegedy, 2015.
/// Not updated inside a checkpoint's second run.
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon);
/// Sums a vector of statistics over everything that shares a batch (ranks, for who trains on several), so that all hold
/// the same total. Differentiable: the gradient of its argument is that of the total, summed over the same.
using CombineStatistics = std::function<Variable(const Variable& sums)>;

/// batch_norm_train over a batch of which x is a share: what `combine` returns decides the statistics, also those
/// in `running`. Shares may differ in size. Statistics of 16-bit activations are f32. Composed of differentiable
/// operations, hence several times slower than batch_norm_train, and keeps x once more, in f32, for backward.
///
/// `combine` is called twice, and the second call's gradient once in backward: at the same points by all if they build
/// the same graph. A checkpoint's second run calls it again. Throws Error, alike on all, if the whole batch has just one
/// value per channel.
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon,
                          const CombineStatistics& combine);
/// Normalises with `running`.
Variable batch_norm_eval(const Variable& x, const Variable& gamma, const Variable& beta,
                         const RunningStats& running, double epsilon);
/// Over the last dim. Ba, Kiros and Hinton, 2016.
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, double epsilon);

}  // namespace brigade
