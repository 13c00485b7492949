// SPDX-License-Identifier: MIT
// nn/optim/clip.h - bounding the global norm of the gradients (Pascanu, Mikolov and Bengio, 2013).
#pragma once

#include "nn/optim/flat_parameters.h"

namespace brigade::optim {

/// sqrt of the sum of all squared gradient elements. Sums of squares of the parameters are added in double in
/// the order of registration, so the result does not depend on the flat order or on buckets.
double grad_norm(const FlatParameters& parameters);

/// Scales all gradients, whose norm is known, by max_norm / (norm + 1e-6) if that is below 1, as PyTorch's
/// clip_grad_norm_. A norm that is not finite changes nothing: the caller decides about the step.
void scale_to_norm(FlatParameters& parameters, double norm, double max_norm);

/// scale_to_norm() by grad_norm(), which it returns.
double clip_grad_norm(FlatParameters& parameters, double max_norm);

/// The same on a device, without waiting: optimizers multiply by the factor (FlatParameters::set_clip). Returns the
/// square of the norm, one f64.
Tensor clip_on_device(FlatParameters& parameters, double max_norm);

}  // namespace brigade::optim
