// SPDX-License-Identifier: MIT
// kernels/cpu/walk.h - walking several strided tensors of one shape together as few, long, straight runs.
// Read before: kernels/walk.h. Read next: kernels/cpu/map.h, then unary.cpp, binary.cpp and reduce.cpp, which walk.
#pragma once

#include "core/parallel.h"
#include "kernels/walk.h"

namespace brigade::cpu {

/// Elements a thread should get at least: below this, waking it costs more than it saves.
inline constexpr std::int64_t kGrain = 32 * 1024;

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
