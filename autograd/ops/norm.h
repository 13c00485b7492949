// SPDX-License-Identifier: MIT
// autograd/ops/norm.h - differentiable normalisation.
#pragma once

#include <functional>

#include "autograd/variable.h"
#include "kernels/kernels.h"

namespace brigade {

/// Statistics a batch norm keeps across steps; plain tensors [C], changed in place.
struct RunningStats {
  Tensor mean, var;  ///< Both undefined: not tracked.
};

/// What follows a batch norm in the same pass over memory, forward and backward: y = relu(bn(x) + residual). In f32 and
/// f64 it has the bits of the separate operations; 16-bit activations are rounded once, at the end.
struct BatchNormThen {
  bool relu = false;
  Variable residual{};  ///< x's shape and dtype; undefined: nothing is added.
};

/// Normalises with the batch's statistics (biased variance) and updates `running` (unbiased variance):
/// running = (1 - momentum) running + momentum batch. Ioffe and Szegedy, 2015.
/// Not updated inside a checkpoint's second run. `moments` are those of x, where they are known already.
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon,
                          const BatchNormThen& then = {}, const ChannelMoments& moments = {});
/// Sums a vector of statistics over everything that shares a batch (ranks, for who trains on several), so that all hold
/// the same total.
using CombineStatistics = std::function<Variable(const Variable& sums)>;

/// batch_norm_train over a batch of which x is a share, of any size, 0 included: what `combine` returns decides the
/// statistics, also those in `running`.
///
/// `combine` is called twice here and once in backward (with gradients, for the same sum: how it is differentiable does
/// not matter), so that all must build the same graph. A checkpoint's second run calls it again. Throws Error, alike on
/// all, if the whole batch has just one value per channel.
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon,
                          const CombineStatistics& combine, const BatchNormThen& then = {});
/// Normalises with `running`.
Variable batch_norm_eval(const Variable& x, const Variable& gamma, const Variable& beta,
                         const RunningStats& running, double epsilon, const BatchNormThen& then = {});
/// Over the last dim. Ba, Kiros and Hinton, 2016.
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, double epsilon);

}  // namespace brigade
