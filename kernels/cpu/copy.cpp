// SPDX-License-Identifier: MIT
// kernels/cpu/copy.cpp - fill, copy with conversion, and where. A copy between two orders of dims (transpose,
// contiguous to channels_last) goes tile by tile, so that each cache line is read and written while it is near.
#include <cstring>

#include "kernels/cpu/basic.h"
#include "kernels/cpu/map.h"

namespace brigade::cpu {
namespace {

// 32 x 32 f32 elements: 4 KiB on each side, well inside L1.
constexpr std::int64_t kTile = 32;

// The dim along which x (tensor 1 of the walk) is dense, or -1.
int dense_dim_of_x(const Walk<2>& walk) {
  for (int d = 0; d < walk.dims - 1; ++d)
    if (walk.dim[d].stride[1] == 1 && walk.dim[d].size >= 4) return d;
  return -1;
}

// out is dense along the last dim of the walk, x along dim `row`: a batch of matrix transposes.
template <class X, class Y>
void copy_tiles(Walk<2> walk, int row, const X* x, Y* out) {
  const auto rows = walk.dim[row], columns = walk.inner();
  const std::int64_t row_tiles = (rows.size + kTile - 1) / kTile;
  // What is left to walk: the other dims, and a dim of tiles in place of `row`.
  walk.dim[row].size = row_tiles;
  for (std::int64_t& stride : walk.dim[row].stride) stride *= kTile;
  --walk.dims;
  const std::int64_t items = walk.numel / (rows.size * columns.size) * row_tiles;
  // The tile's number along `row` is needed to shorten the last one; it is found from the walk's position.
  std::int64_t below = 1;
  for (int d = row + 1; d < walk.dims; ++d) below *= walk.dim[d].size;

  const auto tile = [&](std::int64_t position, std::int64_t to, std::int64_t from) {
    const std::int64_t first = position / below % row_tiles * kTile;
    const std::int64_t height = std::min(kTile, rows.size - first);
    for (std::int64_t c0 = 0; c0 < columns.size; c0 += kTile) {
      const std::int64_t width = std::min(kTile, columns.size - c0);
      for (std::int64_t r = 0; r < height; ++r) {
        Y* line = out + to + r * rows.stride[0] + c0;
        const X* source = x + from + r + c0 * columns.stride[1];
        for (std::int64_t c = 0; c < width; ++c) line[c] = convert<Y>(source[c * columns.stride[1]]);
      }
    }
  };
  parallel_for(items, std::max<std::int64_t>(1, kGrain / (kTile * columns.size)),
               [&](std::int64_t begin, std::int64_t end) {
                 for_each_run(walk, begin, end,
                              [&](std::int64_t position, const std::int64_t* at, std::int64_t count,
                                  const std::int64_t* stride) {
                                for (std::int64_t i = 0; i < count; ++i)
                                  tile(position + i, at[0] + i * stride[0], at[1] + i * stride[1]);
                              });
               });
}

template <class X, class Y>
void copy_as(const Tensor& x, Tensor& out) {
  const auto walk = plan_walk(Order::memory, out, x);
  if (walk.numel > 0 && walk.inner().stride[0] == 1 && walk.inner().stride[1] > 1 && walk.inner().size >= 4)
    if (const int row = dense_dim_of_x(walk); row >= 0)
      return copy_tiles<X, Y>(walk, row, x.data<X>(), out.data<Y>());
  if constexpr (std::is_same_v<X, Y>) {
    const auto* from = x.data<X>();
    auto* to = out.data<Y>();
    parallel_runs(walk,
                  [=](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                    if (stride[0] == 1 && stride[1] == 1)
                      std::memcpy(to + at[0], from + at[1], static_cast<std::size_t>(count) * sizeof(X));
                    else
                      for (std::int64_t i = 0; i < count; ++i)
                        to[at[0] + i * stride[0]] = from[at[1] + i * stride[1]];
                  });
  } else {
    map<Y, X>([](compute_t<X> value) { return value; }, x, out);
  }
}

}  // namespace

void fill(Tensor& out, double value) {
  dispatch(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T constant = convert<T>(value);
    T* to = out.data<T>();
    parallel_runs(plan_walk(Order::memory, out),
                  [=](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                    if (stride[0] == 1)
                      std::fill_n(to + at[0], count, constant);
                    else
                      for (std::int64_t i = 0; i < count; ++i) to[at[0] + i * stride[0]] = constant;
                  });
  });
}

void copy(const Tensor& x, Tensor& out) {
  dispatch(x.dtype(), [&](auto from) {
    dispatch(out.dtype(),
             [&](auto to) { copy_as<typename decltype(from)::type, typename decltype(to)::type>(x, out); });
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  dispatch(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool* conditions = condition.data<bool>();
    const T *as = a.data<T>(), *bs = b.data<T>();
    T* to = out.data<T>();
    parallel_runs(plan_walk(Order::memory, out, condition, a, b),
                  [=](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                    for (std::int64_t i = 0; i < count; ++i)
                      to[at[0] + i * stride[0]] = conditions[at[1] + i * stride[1]]
                                                      ? as[at[2] + i * stride[2]]
                                                      : bs[at[3] + i * stride[3]];
                  });
  });
}

}  // namespace brigade::cpu
