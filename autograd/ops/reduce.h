// SPDX-License-Identifier: MIT
// autograd/ops/reduce.h - differentiable reductions. An empty list of dims means all of them.
#pragma once

#include "autograd/variable.h"
#include "kernels/ops.h"

namespace brigade {

Variable sum(const Variable& x, const Dims& dims = {}, ops::KeepDims keep = ops::KeepDims::no);
Variable mean(const Variable& x, const Dims& dims = {}, ops::KeepDims keep = ops::KeepDims::no);
/// The gradient goes to the first of equal maxima.
Variable max(const Variable& x, std::int64_t dim, ops::KeepDims keep = ops::KeepDims::no);

}  // namespace brigade
