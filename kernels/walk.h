// SPDX-License-Identifier: MIT
// kernels/walk.h - several strided tensors of one shape seen together as few dims. Dims of size 1 vanish, dims that are
// dense with each other merge: two contiguous (or two channels_last) tensors become a single run of numel() elements,
// whatever their number of dims. Read next: kernels/cpu/walk.h, kernels/cuda/walk.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tensor.h"

namespace brigade {

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

/// The dims of a reduction in memory order, cut into those that are reduced and those that are kept (tensor 0 is x,
/// tensor 1 is out, with size 1 where x is reduced).
struct Split {
  Walk<2> kept, reduced;
  bool inner_is_kept = false;  ///< Of all dims, the densest of x is a kept one.
};

inline Split split(const Tensor& x, const Tensor& out) {
  const auto walk = plan_walk(Order::memory, x, out);
  Split result;
  for (int d = 0; d < walk.dims; ++d) {
    // Only a reduced dim has size 1, thus stride 0, in out. Of one element, nothing is left to reduce.
    const bool kept = walk.dim[d].stride[1] != 0 || walk.dim[d].size == 1;
    Walk<2>& side = kept ? result.kept : result.reduced;
    side.dim[side.dims++] = walk.dim[d];
    side.numel *= walk.dim[d].size;
    result.inner_is_kept = kept;
  }
  for (Walk<2>* side : {&result.kept, &result.reduced}) side->dims = std::max(side->dims, 1);
  return result;
}

}  // namespace brigade
