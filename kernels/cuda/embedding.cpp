// SPDX-License-Identifier: MIT
// kernels/cuda/embedding.cpp - rows of a table by id, the gradient, and the search for an id that is out of range.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {

void embedding(const Tensor& w, const Tensor& ids, Tensor& out) {
  const std::int64_t row_bytes = w.size(1) * w.item_bytes(), count = ids.numel();
  const std::int64_t most = std::max<std::int64_t>(kMostElements / std::max<std::int64_t>(row_bytes, 1), 1);
  for (std::int64_t first = 0; first < count; first += most)
    launched(
        device::embedding(static_cast<int>(row_bytes), w.raw(), w.size(0), ids.data<std::int64_t>() + first,
                          std::min(most, count - first), out.raw() + first * row_bytes, stream_of(w)),
        "embedding");
}

void embedding_grad(const Tensor& dy, const Tensor& ids, Tensor& dw) {
  BRIGADE_CHECK(is_floating(dw.dtype()), "embedding_grad: needs a floating dtype; got ", dw.dtype());
  fill(dw, 0);
  if (ids.numel() == 0 || dw.size(1) == 0) return;
  launched(device::embedding_grad(dw.dtype(), dy.raw(), ids.data<std::int64_t>(), ids.numel(), dw.size(0),
                                  dw.size(1), dw.raw(), stream_of(dw)),
           "embedding_grad");
}

void find_out_of_range(const Tensor& ids, std::int64_t limit, std::int64_t allowed, Tensor& found) {
  BRIGADE_CHECK(ids.numel() <= kMostElements, "find_out_of_range: at most ", kMostElements,
                " ids on a GPU; got ", ids);
  launched(device::find_out_of_range(ids.data<std::int64_t>(), strided(plan_walk(Order::row_major, ids)),
                                     limit, allowed, found.data<std::int64_t>(), stream_of(ids)),
           "find_out_of_range");
}

}  // namespace brigade::cuda
