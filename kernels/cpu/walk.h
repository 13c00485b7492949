// SPDX-License-Identifier: MIT
// kernels/cpu/walk.h - walking several strided tensors of one shape together as few, long, straight runs.
// Dims of size 1 vanish, dims that are dense with each other merge: two contiguous (or two channels_last) tensors
// become a single run of numel() elements, whatever their number of dims.
// Read next: kernels/cpu/map.h, then unary.cpp, binary.cpp and reduce.cpp, which walk.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/parallel.h"
#include "core/tensor.h"

namespace brigade::cpu {

/// Elements a thread should get at least: below this, waking it costs more than it saves.
inline constexpr std::int64_t kGrain = 32 * 1024;

/// How dims are ordered before they merge. memory: by falling stride of the first tensor, so that its memory is
/// visited front to back. row_major: as they are, so that positions count elements in logical order.
enum class Order { memory, row_major };

/// The plan for N tensors. Always has at least one dim; the last one is the run.
template <int N>
struct Walk {
  struct Dim {
    std::int64_t size = 1;
    std::int64_t stride[N] = {};
  };
  Dim dim[kMaxDims];
  int dims = 0;
  std::int64_t numel = 1;

  const Dim& inner() const { return dim[dims - 1]; }
};

/// Plans a walk over `first.shape()`; the other tensors have that shape, or size 1 where they repeat.
template <class... Others>
Walk<1 + sizeof...(Others)> plan_walk(Order order, const Tensor& first, const Others&... others) {
  constexpr int N = 1 + sizeof...(Others);
  const Tensor* tensors[N] = {&first, &others...};
  Walk<N> walk;
  walk.numel = first.numel();
  for (int d = 0; d < first.dims(); ++d) {
    if (first.shape()[d] == 1) continue;
    auto& dim = walk.dim[walk.dims++];
    dim.size = first.shape()[d];
    for (int n = 0; n < N; ++n) dim.stride[n] = tensors[n]->shape()[d] == 1 ? 0 : tensors[n]->stride(d);
  }
  if (order == Order::memory)
    std::stable_sort(walk.dim, walk.dim + walk.dims,
                     [](const auto& a, const auto& b) { return a.stride[0] > b.stride[0]; });
  int last = 0;
  for (int d = 1; d < walk.dims; ++d) {
    auto &outer = walk.dim[last], &inner = walk.dim[d];
    bool merges = true;
    for (int n = 0; n < N; ++n) merges = merges && outer.stride[n] == inner.stride[n] * inner.size;
    if (merges) {
      inner.size *= outer.size;
      outer = inner;
    } else {
      walk.dim[++last] = inner;
    }
  }
  walk.dims = last + 1;
  return walk;
}

/// Calls f(position, at, count, stride) for the runs that make up positions [begin, end) of the walk: run element
/// k of tensor n lies at[n] + k * stride[n] elements from its start.
template <int N, class F>
void for_each_run(const Walk<N>& walk, std::int64_t begin, std::int64_t end, const F& f) {
  std::int64_t index[kMaxDims] = {}, at[N] = {};
  std::int64_t rest = begin;
  for (int d = walk.dims - 1; d >= 0 && rest > 0; --d) {
    index[d] = rest % walk.dim[d].size;
    rest /= walk.dim[d].size;
    for (int n = 0; n < N; ++n) at[n] += index[d] * walk.dim[d].stride[n];
  }
  const auto advance = [&](int d, std::int64_t count) {
    index[d] += count;
    for (int n = 0; n < N; ++n) at[n] += count * walk.dim[d].stride[n];
  };
  const int last = walk.dims - 1;
  while (begin < end) {
    const std::int64_t count = std::min(walk.dim[last].size - index[last], end - begin);
    f(begin, static_cast<const std::int64_t*>(at), count, walk.dim[last].stride);
    begin += count;
    advance(last, count);
    for (int d = last; d > 0 && index[d] == walk.dim[d].size; --d) {
      advance(d, -walk.dim[d].size);
      advance(d - 1, 1);
    }
  }
}

/// for_each_run over everything, on all threads.
template <int N, class F>
void parallel_runs(const Walk<N>& walk, const F& f) {
  parallel_for(walk.numel, kGrain,
               [&](std::int64_t begin, std::int64_t end) { for_each_run(walk, begin, end, f); });
}

}  // namespace brigade::cpu
