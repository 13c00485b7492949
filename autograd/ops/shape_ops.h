// SPDX-License-Identifier: MIT
// autograd/ops/shape_ops.h - differentiable views, copies and casts; semantics of the tensor functions of the same
// name in core/tensor.h and kernels/ops.h.
#pragma once

#include <vector>

#include "autograd/variable.h"

namespace brigade {

Variable reshape(const Variable& x, const Shape& shape);
Variable flatten(const Variable& x, std::int64_t first_dim = 1);  ///< Merges dims first_dim.. into one.
Variable permute(const Variable& x, const Dims& order);
Variable transpose(const Variable& x, std::int64_t dim0, std::int64_t dim1);
Variable slice(const Variable& x, std::int64_t dim, std::int64_t begin, std::int64_t end,
               std::int64_t step = 1);
Variable select(const Variable& x, std::int64_t dim, std::int64_t index);
Variable expand(const Variable& x, const Shape& shape);
Variable squeeze(const Variable& x, std::int64_t dim);
Variable unsqueeze(const Variable& x, std::int64_t dim);
Variable concat(const std::vector<Variable>& xs, std::int64_t dim);
Variable stack(const std::vector<Variable>& xs, std::int64_t dim);
Variable pad(const Variable& x, const Dims& before, const Dims& after, double value = 0);
Variable cast(const Variable& x, DType dtype);
/// Same values, dense in `format`; the gradient comes back in x's own format.
Variable contiguous(const Variable& x, MemoryFormat format = MemoryFormat::contiguous);

}  // namespace brigade
