// SPDX-License-Identifier: MIT
// kernels/cuda/device/attention.cuh - what attention and its gradient share: tiles of rows in shared memory, and eight
// threads for each row of the own tile. Read before: walk.cuh, launch.cuh. Read next: attention.cu.
#pragma once

#include <cmath>
#include <initializer_list>

#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/fold.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace brigade::device {

/// Threads that share a row: each takes every eighth score, and every eighth pack of columns.
inline constexpr unsigned kGroup = 8;

/// Tiles of kRows rows with up to kGroup * kColumns columns of C, and blocks of a group for each row.
template <class C, int kRows_, int kColumns_>
struct Tiles {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kV = kWidth<C>;
  static constexpr int kScores = kRows / static_cast<int>(kGroup);
  static constexpr int kRoom = kColumns * static_cast<int>(kGroup);
  static constexpr int kPitch = kRoom + kV;     ///< Rows of a group's threads begin in different banks.
  static constexpr int kTile = kRows * kPitch;  ///< Elements of a tile.
  static constexpr int kWeights = kRows * (kRows + 1);
  static constexpr unsigned kThreads = kRows * kGroup;
};

template <class T>
__device__ T* head_of(const HeadRows& rows, std::int64_t heads, std::int64_t number) {
  return static_cast<T*>(rows.at) + number / heads * rows.stride[0] + number % heads * rows.stride[1];
}

/// Whether all rows can be read and written in packs.
template <class T>
bool rows_pack(std::int64_t width, std::initializer_list<HeadRows> tensors) {
  constexpr int V = kWidth<T>;
  bool packs = width % V == 0;
  for (const HeadRows& t : tensors) {
    packs = packs && is_aligned<V>(static_cast<const T*>(t.at));
    for (const std::int64_t stride : t.stride) packs = packs && stride % V == 0;
  }
  return packs;
}

/// Rows [first, first + kRows) of `count`, with zeros behind the last row and the last column. All threads of a block.
template <class Layout, int V, class T, class C>
__device__ void load_tile(const T* rows, std::int64_t stride, std::int64_t first, std::int64_t count,
                          std::int64_t width, C* tile) {
  constexpr int kPacks = Layout::kRoom / V;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Layout::kRows * kPacks;
       i += static_cast<int>(Layout::kThreads)) {
    const int r = i / kPacks, c = i % kPacks * V;
    Pack<T, V> pack{};
    if (first + r < count && c < width) pack = load<V>(rows + (first + r) * stride + c);
#pragma unroll
    for (int v = 0; v < V; ++v) tile[r * Layout::kPitch + c + v] = convert<C>(pack.v[v]);
  }
}
template <class Layout, class T, class C>
__device__ void load_tile(bool packs, const T* rows, std::int64_t stride, std::int64_t first,
                          std::int64_t count, std::int64_t width, C* tile) {
  if (packs)
    load_tile<Layout, kWidth<T>>(rows, stride, first, count, width, tile);
  else
    load_tile<Layout, 1>(rows, stride, first, count, width, tile);
}

/// products[i] = row · row number lane + i * kGroup of `others`.
template <class Layout, class C>
__device__ void multiply_rows(const C* row, const C* others, int lane, C (&products)[Layout::kScores]) {
#pragma unroll
  for (int i = 0; i < Layout::kScores; ++i) products[i] = 0;
#pragma unroll 4
  for (int c = 0; c < Layout::kRoom; c += Layout::kV) {
    const Pack<C, Layout::kV> a = load<Layout::kV>(row + c);
#pragma unroll
    for (int i = 0; i < Layout::kScores; ++i) {
      const Pack<C, Layout::kV> b =
          load<Layout::kV>(others + (lane + i * static_cast<int>(kGroup)) * Layout::kPitch + c);
#pragma unroll
      for (int v = 0; v < Layout::kV; ++v) products[i] += a.v[v] * b.v[v];
    }
  }
}

/// The first column of pack p of this thread.
template <class Layout>
__device__ int column_of(int p, int lane) {
  return (p * static_cast<int>(kGroup) + lane) * Layout::kV;
}

/// sums += Σ weights[j] · row j of `others`, in this thread's columns.
template <class Layout, class C>
__device__ void add_rows(const C* weights, const C* others, int lane, C (&sums)[Layout::kColumns]) {
#pragma unroll 4
  for (int j = 0; j < Layout::kRows; ++j) {
    const C weight = weights[j];
#pragma unroll
    for (int p = 0; p < Layout::kColumns / Layout::kV; ++p) {
      const Pack<C, Layout::kV> b =
          load<Layout::kV>(others + j * Layout::kPitch + column_of<Layout>(p, lane));
#pragma unroll
      for (int v = 0; v < Layout::kV; ++v) sums[p * Layout::kV + v] += weight * b.v[v];
    }
  }
}

/// row[..] = scale * sums, in this thread's columns.
template <class Layout, class T, class C>
__device__ void store_row(bool packs, const C (&sums)[Layout::kColumns], C scale, std::int64_t width,
                          int lane, T* row) {
#pragma unroll
  for (int p = 0; p < Layout::kColumns / Layout::kV; ++p) {
    const int c = column_of<Layout>(p, lane);
    Pack<T, Layout::kV> pack;
#pragma unroll
    for (int v = 0; v < Layout::kV; ++v) pack.v[v] = convert<T>(sums[p * Layout::kV + v] * scale);
    if (packs && c < width) store<Layout::kV>(row + c, pack);
#pragma unroll
    for (int v = 0; v < Layout::kV; ++v)
      if (!packs && c + v < width) row[c + v] = pack.v[v];
  }
}

inline std::int64_t tiles_for(std::int64_t count, std::int64_t rows) { return (count + rows - 1) / rows; }

}  // namespace brigade::device
