// SPDX-License-Identifier: MIT
// autograd/ops/attention.h - differentiable attention that keeps no matrix of scores.
#pragma once

#include "autograd/variable.h"
#include "kernels/parameters.h"

namespace brigade {

/// softmax(scale q kᵀ) v for each head: q [N, H, T, D], k, v [N, H, S, D] -> [N, H, T, D], which lies in memory as
/// [N, T, H, D]. See the slot in kernels/kernels.h.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options);

/// The same of one tensor qkv [N, T, 3, H, D], as one product with all weights leaves it -> [N, T, H, D]. Nothing is
/// copied, and the gradient is one tensor again.
Variable self_attention(const Variable& qkv, const AttentionOptions& options);

}  // namespace brigade
