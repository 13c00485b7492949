// SPDX-License-Identifier: MIT
// nn/optim/clip.h - bounding the global norm of the gradients (Pascanu, Mikolov and Bengio, 2013).
#pragma once

#include "nn/optim/flat_parameters.h"

namespace brigade::optim {

/// sqrt of the sum of all squared gradient elements. Sums of squares of the parameters are added in double in
/// the order of registration, so the result does not depend on the flat order or on buckets.
double grad_norm(const FlatParameters& parameters);

/// Scales all gradients by max_norm / (norm + 1e-6) if that is below 1, as PyTorch's
/// clip_grad_norm_. Returns the norm before. A norm that is not finite is returned and changes
/// nothing: the caller decides about the step.
double clip_grad_norm(FlatParameters& parameters, double max_norm);

}  // namespace brigade::optim
