// SPDX-License-Identifier: MIT
// dist/sum_over_ranks.h - a collective as a differentiable operation: what synchronised batch norm is made of.
// Read before: autograd/node.h, dist/process_group.h. Read next: nn/batch_norm.h (set_statistics_combiner).
#pragma once

#include "autograd/variable.h"
#include "dist/process_group.h"

namespace brigade::dist {

/// The elementwise sum of every rank's x (same shape and dtype), bit-identical on all ranks. Blocks.
///
/// Backward sums the incoming gradients over ranks: x of one rank changes the total on all, so that its gradient counts
/// every rank's loss once. With losses that are means over equal shares of a batch, the gradient with respect to x is
/// hence `group.size()` times that of the mean loss; Ddp's averaging of parameter gradients makes it right.
///
/// Forward and backward are collectives: all ranks must reach them in the same order among the group's others, which
/// they do if they build the same graph. Buckets that launch in between do no harm as long as ranks launch them at the
/// same points; where they do not (control flow that differs between ranks), give this a group of its own. A rank
/// without a batch (Ddp::backward_without_batch) cannot take part: all must run the same forwards. `group` must outlive
/// the graph. Throws CommError, from backward too.
Variable sum_over_ranks(const Variable& x, ProcessGroup& group);

}  // namespace brigade::dist
