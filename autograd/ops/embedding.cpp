// SPDX-License-Identifier: MIT
// autograd/ops/embedding.cpp - derivative of the table lookup.
#include "autograd/ops/embedding.h"

#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {

// y[i] = w[ids[i]]   =>   dw[v] = sum of dy[i] over the i with ids[i] = v
Variable embedding(const Variable& w, const Tensor& ids) {
  return record("embedding", ops::embedding(w.value(), ids), {w},
                [ids_kept = SavedTensor(ids)](const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  Tensor dw = out.destination(0);
                  ops::embedding_grad(dy, out.load(ids_kept), dw);
                  out.give(0, dw);
                });
}

}  // namespace brigade
