// SPDX-License-Identifier: MIT
// kernels/reference/embedding.cpp - rows of a table by id.
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

// Calls f(n, id) for the n-th id in row-major order.
template <class F>
void for_each_id(const Tensor& ids, F&& f) {
  std::int64_t n = 0;
  for_each_index(ids.shape(), [&](const Dims& i) { f(n++, ids.data<std::int64_t>()[offset(ids, i)]); });
}

}  // namespace

void embedding(const Tensor& w, const Tensor& ids, Tensor& out) {
  const std::int64_t width = w.size(1);
  const Tensor to = out.view({ids.numel(), width});
  for_each_id(ids, [&](std::int64_t n, std::int64_t id) {
    for (std::int64_t i = 0; i < width; ++i) set(to, get(w, id, i), n, i);
  });
}

void embedding_grad(const Tensor& dy, const Tensor& ids, Tensor& dw) {
  const std::int64_t width = dw.size(1);
  const Tensor from = dy.view({ids.numel(), width});
  Tensor sums = Tensor::zeros(dw.shape(), DType::f64);
  for_each_id(ids, [&](std::int64_t n, std::int64_t id) {
    for (std::int64_t i = 0; i < width; ++i) add_to(sums, get(from, n, i), id, i);
  });
  copy(sums, dw);
}

void find_out_of_range(const Tensor& ids, std::int64_t limit, std::int64_t allowed, Tensor& found) {
  std::int64_t* const out = found.data<std::int64_t>();
  out[0] = -1, out[1] = 0;
  for_each_id(ids, [&](std::int64_t n, std::int64_t id) {
    if (out[0] < 0 && (id < 0 || id >= limit) && id != allowed) out[0] = n, out[1] = id;
  });
}

}  // namespace brigade::reference
