// SPDX-License-Identifier: MIT
// kernels/cuda/device/walk.cuh - from the number of an element to its place in several strided tensors, and reading and
// writing many neighbours at once. Read before: device_kernels.h. Read next: map.cuh.
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/cuda/device/device_kernels.h"
#include "kernels/functor/convert.h"

namespace brigade::device {

/// Division of n < 2^31 by a constant: a multiplication and a shift (Granlund and Montgomery, "Division by invariant
/// integers using multiplication", PLDI 1994, figure 4.1). A GPU has no instruction for it.
struct Divider {
  std::uint32_t divisor = 1, magic = 1, shift = 0;

  Divider() = default;
  explicit Divider(std::int64_t d) : divisor(static_cast<std::uint32_t>(d)) {
    while (std::int64_t{1} << shift < d) ++shift;
    magic = static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - divisor) << 32) / divisor + 1);
  }
  BRIGADE_HD std::uint32_t divide(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>(std::uint64_t{n} * magic >> 32);
    return (high + n) >> shift;
  }
};

/// Strided<N> as a kernel wants it: the innermost dim first, sizes as dividers. Its elements are packs of `width`
/// neighbours along the innermost dim.
template <int N>
struct Offsets {
  std::uint32_t numel = 0;
  int dims = 1;
  Divider size[kMaxWalkDims];
  std::int64_t stride[N][kMaxWalkDims] = {};
  bool constant[N] = {};  ///< Does not move along the innermost dim.

  Offsets(const Strided<N>& walk, int width) : dims(walk.dims) {
    numel = 1;
    for (int d = 0; d < dims; ++d) {
      const int from = dims - 1 - d;
      const std::int64_t items = d == 0 ? walk.size[from] / width : walk.size[from];
      numel *= static_cast<std::uint32_t>(items);
      size[d] = Divider(std::max<std::int64_t>(items, 1));
      for (int n = 0; n < N; ++n) stride[n][d] = walk.stride[n][from] * (d == 0 ? width : 1);
    }
    for (int n = 0; n < N; ++n) constant[n] = walk.stride[n][dims - 1] == 0;
  }

  /// at[n]: elements from the start of tensor n to element (or pack) i.
  BRIGADE_HD void find(std::uint32_t i, std::int64_t* at) const {
#pragma unroll
    for (int n = 0; n < N; ++n) at[n] = 0;
    if (dims == 1) {
#pragma unroll
      for (int n = 0; n < N; ++n) at[n] = i * stride[n][0];
      return;
    }
#pragma unroll
    for (int d = 0; d < kMaxWalkDims; ++d) {
      if (d == dims) break;
      const std::uint32_t rest = size[d].divide(i), index = i - rest * size[d].divisor;
#pragma unroll
      for (int n = 0; n < N; ++n) at[n] += index * stride[n][d];
      i = rest;
    }
  }
};

constexpr int at_most(int a, int b) { return a < b ? a : b; }

/// V neighbours, aligned for accesses of up to 16 bytes.
template <class T, int V>
struct alignas(at_most(16, static_cast<int>(sizeof(T)) * V)) Pack {
  T v[V];
};

/// The unsigned type of one access: as wide as a Pack of `bytes`, at most 16 bytes.
template <int bytes>
using word_t = std::conditional_t<
    bytes % 16 == 0, uint4,
    std::conditional_t<bytes == 8, uint2,
                       std::conditional_t<bytes == 4, std::uint32_t,
                                          std::conditional_t<bytes == 2, std::uint16_t, std::uint8_t>>>>;

/// A Pack as words. Reading and writing these, and not the Pack, is what makes one access of it: a compiler takes the
/// copy of a struct apart again, element by element. It does so even with a copy of words, but not with __stwb(), an
/// ordinary store of a value in registers.
template <class T, int V>
struct Words {
  using Word = word_t<static_cast<int>(sizeof(Pack<T, V>))>;
  static constexpr int kCount = static_cast<int>(sizeof(Pack<T, V>) / sizeof(Word));
  Word at[kCount];
};

template <int V, class T>
__device__ Pack<T, V> load(const T* from) {
  if constexpr (V == 1) {
    return {*from};
  } else {
    using W = Words<T, V>;
    W words;
#pragma unroll
    for (int k = 0; k < W::kCount; ++k) words.at[k] = reinterpret_cast<const typename W::Word*>(from)[k];
    return std::bit_cast<Pack<T, V>>(words);
  }
}
template <int V, class T>
__device__ void store(T* to, const Pack<T, V>& pack) {
  if constexpr (V == 1) {
    *to = pack.v[0];
  } else {
    using W = Words<T, V>;
    const auto words = std::bit_cast<W>(pack);
#pragma unroll
    for (int k = 0; k < W::kCount; ++k) __stwb(reinterpret_cast<typename W::Word*>(to) + k, words.at[k]);
  }
}

/// Elements of T in 16 bytes, at most 8.
template <class T>
inline constexpr int kWidth = at_most(8, 16 / static_cast<int>(sizeof(T)));

template <int V, class T>
bool is_aligned(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % alignof(Pack<T, V>) == 0;
}

/// Whether tensor n, which begins at p, can be walked in packs of V: it lies dense or still along the innermost dim,
/// and every other step keeps it aligned.
template <int V, int N, class T>
bool packs(const Strided<N>& walk, int n, const T* p) {
  const int inner = walk.dims - 1;
  if (walk.dims > 1 && walk.size[inner] % V != 0) return false;
  if (walk.stride[n][inner] == 0) return n > 0;
  if (walk.stride[n][inner] != 1 || !is_aligned<V>(p)) return false;
  for (int d = 0; d < inner; ++d)
    if (walk.stride[n][d] % V != 0) return false;
  return true;
}

}  // namespace brigade::device
