// SPDX-License-Identifier: MIT
// dist/sum_over_ranks.cpp - one all-reduce forward, one backward.
#include "dist/sum_over_ranks.h"

#include "autograd/node.h"
#include "kernels/ops.h"

namespace brigade::dist {
namespace {

Tensor summed(const Tensor& x, ProcessGroup& group, const char* label) {
  Tensor total = ops::clone(x);  // Collectives write in place.
  group.all_reduce(total, Reduce::sum, label).wait();
  return total;
}

}  // namespace

// y = Σ over ranks x_r,  loss = Σ over ranks loss_r(y)   =>   dx = Σ over ranks dy_r
Variable sum_over_ranks(const Variable& x, ProcessGroup& group) {
  return record("sum_over_ranks", summed(x.value(), group, "sum over ranks"), {x},
                [to = &group](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, summed(dy, *to, "gradient of a sum over ranks"));
                });
}

}  // namespace brigade::dist
