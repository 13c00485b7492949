// SPDX-License-Identifier: MIT
// autograd/ops/norm.h - differentiable normalisation.
#pragma once

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
/// Normalises with `running`.
Variable batch_norm_eval(const Variable& x, const Variable& gamma, const Variable& beta,
                         const RunningStats& running, double epsilon);
/// Over the last dim. Ba, Kiros and Hinton, 2016.
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, double epsilon);

}  // namespace brigade
