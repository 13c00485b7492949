// SPDX-License-Identifier: MIT
// kernels/cuda/device/rows.cuh - dense rows of [count, width]: a warp each, or a block each where they are long. A row
// is read again where it is needed again; it is in the first or second cache then. Read before: fold.cuh, walk.cuh.
#pragma once

#include "kernels/cuda/device/fold.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace brigade::device {

/// Calls f(row) for the rows of this thread; all threads of a row's group come along.
template <class F>
__device__ void for_each_row(const Rows& rows, const F& f) {
  for (std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y; row < rows.count;
       row += std::int64_t{gridDim.x} * blockDim.y)
    f(row);
}

/// Calls f(column) for the packs of V columns that are this thread's.
template <int V, class F>
__device__ void for_each_pack(std::int64_t width, const F& f) {
  for (std::int64_t column = std::int64_t{threadIdx.x} * V; column < width;
       column += std::int64_t{blockDim.x} * V)
    f(column);
}

/// The shape of a block: a warp a row up to 1024 columns.
inline dim3 row_block(const Rows& rows) {
  return rows.width <= 1024 ? dim3(kWarp, kThreads / kWarp) : dim3(kThreads, 1);
}

inline unsigned row_grid(const Rows& rows) {
  const unsigned together = row_block(rows).y;
  return static_cast<unsigned>(
      std::min<std::int64_t>((rows.count + together - 1) / together, std::int64_t{multiprocessors()} * 32));
}

/// Whether rows of these tensors can be read and written in packs of V.
template <int V, class... T>
bool rows_pack(const Rows& rows, const T*... tensors) {
  return rows.width % V == 0 && (is_aligned<V>(tensors) && ...);
}

/// f(integral_constant<int, V>): the width for rows of the narrowest T, or 1.
template <class... T, class F>
cudaError_t with_width(const Rows& rows, F&& f, const T*... tensors) {
  constexpr int V = std::max({kWidth<T>...});
  if (rows.count == 0 || rows.width == 0) return cudaSuccess;
  if (rows_pack<V>(rows, tensors...)) return f(std::integral_constant<int, V>{});
  return f(std::integral_constant<int, 1>{});
}

}  // namespace brigade::device
