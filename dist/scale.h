// SPDX-License-Identifier: MIT
// dist/scale.h - one pass over gradients: scaling them, and looking for what is not finite.
#pragma once

#include "core/tensor.h"

namespace brigade::dist {

/// t *= factor, in place. t: contiguous, floating; 16-bit floats are multiplied in f32. A factor of 0 writes zeros,
/// whatever t holds. On a device: work for its current stream.
void scale(Tensor& t, double factor);

/// True if every element is neither infinite nor NaN. t: contiguous, floating. Uses the caller's threads. Of a device
/// it looks at a copy: blocks.
bool all_finite(const Tensor& t);

}  // namespace brigade::dist
