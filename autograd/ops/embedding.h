// SPDX-License-Identifier: MIT
// autograd/ops/embedding.h - rows of a table by index.
#pragma once

#include "autograd/variable.h"

namespace brigade {

/// w [V, D], ids i64 [..] -> [.., D]. Throws Error naming position, id and V for an id outside [0, V).
Variable embedding(const Variable& w, const Tensor& ids);

}  // namespace brigade
