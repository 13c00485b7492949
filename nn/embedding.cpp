// SPDX-License-Identifier: MIT
// nn/embedding.cpp - construction and forward of the embedding table.
#include "nn/embedding.h"

#include "autograd/ops/embedding.h"
#include "kernels/ops.h"

namespace brigade::nn {

Embedding::Embedding(std::int64_t count, std::int64_t size)
    : weight(register_parameter("weight",
                                Variable::parameter(ops::randn({count, size}, default_generator())))) {}

Variable Embedding::forward(const Variable& ids) { return embedding(weight, ids.value()); }

}  // namespace brigade::nn
