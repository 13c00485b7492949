// SPDX-License-Identifier: MIT
// kernels/cpu/embedding.cpp - rows of a table by id, and the sum of gradients by id.
#include <cstring>

#include "kernels/cpu/basic.h"
#include "kernels/cpu/walk.h"
#include "kernels/functor/convert.h"

namespace brigade::cpu {

void embedding(const Tensor& w, const Tensor& ids, Tensor& out) {
  const std::int64_t bytes = w.size(1) * w.item_bytes();
  const auto* id = ids.data<std::int64_t>();
  const std::byte* from = w.raw();
  std::byte* to = out.raw();
  parallel_for(ids.numel(), std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(w.size(1), 1)),
               [=](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t n = begin; n < end; ++n)
                   std::memcpy(to + n * bytes, from + id[n] * bytes, static_cast<std::size_t>(bytes));
               });
}

void embedding_grad(const Tensor& dy, const Tensor& ids, Tensor& dw) {
  const std::int64_t width = dw.size(1), count = ids.numel();
  const auto* id = ids.data<std::int64_t>();
  fill(dw, 0);
  dispatch_floating("embedding_grad", dw.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T* from = dy.data<T>();
    T* to = dw.data<T>();
    // Threads share the columns, not the rows: equal ids then meet in one thread, and in their order.
    parallel_for(width, std::max<std::int64_t>(16, kGrain / std::max<std::int64_t>(count, 1)),
                 [=](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t n = 0; n < count; ++n) {
                     const T* source = from + n * width;
                     T* total = to + id[n] * width;
#pragma GCC ivdep
                     for (std::int64_t c = begin; c < end; ++c)
                       total[c] = convert<T>(convert<C>(total[c]) + convert<C>(source[c]));
                   }
                 });
  });
}

void find_out_of_range(const Tensor& ids, std::int64_t limit, std::int64_t allowed, Tensor& out) {
  const auto* id = ids.data<std::int64_t>();
  std::int64_t found = -1, bad = 0;
  const auto walk = plan_walk(Order::row_major, ids);
  for_each_run(
      walk, 0, walk.numel,
      [&](std::int64_t position, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
        for (std::int64_t i = 0; found < 0 && i < count; ++i) {
          const std::int64_t value = id[at[0] + i * stride[0]];
          if ((value < 0 || value >= limit) && value != allowed) found = position + i, bad = value;
        }
      });
  out.data<std::int64_t>()[0] = found;
  out.data<std::int64_t>()[1] = bad;
}

}  // namespace brigade::cpu
