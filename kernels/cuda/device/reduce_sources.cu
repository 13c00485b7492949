// SPDX-License-Identifier: MIT
// kernels/cuda/device/reduce_sources.cu - out[i] = sources[0][i] op sources[1][i] op …: what ranks do that read each
// other's memory (dist/ipc). In rank order and rounded once, so that an element gets the bits that
// dist/reduce_buffers.cpp gives it on the CPU. Read before: kernels/functor/combine.h.
#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/functor/combine.h"

namespace brigade::device {
namespace {

template <int V, Reduction op, class T>
__device__ void fold(const Sources& from, std::int64_t i, T* out) {
  using C = compute_t<T>;
  const Pack<T, V> first = load<V>(static_cast<const T*>(from.at[0]) + i);
  C sum[V];
#pragma unroll
  for (int v = 0; v < V; ++v) sum[v] = convert<C>(first.v[v]);
  for (int k = 1; k < from.count; ++k) {
    const Pack<T, V> next = load<V>(static_cast<const T*>(from.at[k]) + i);
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] = functor::combine<op>(sum[v], convert<C>(next.v[v]));
  }
  Pack<T, V> result;
#pragma unroll
  for (int v = 0; v < V; ++v)
    result.v[v] = convert<T>(op == Reduction::mean ? functor::divided(sum[v], from.count) : sum[v]);
  store<V>(out + i, result);
}

// The operation is decided by each thread: it is the same for all of them, and memory takes longer.
template <int V, class T>
__device__ void fold_any(const Sources& from, Reduction op, std::int64_t i, T* out) {
  switch (op) {
    case Reduction::sum:
      return fold<V, Reduction::sum>(from, i, out);
    case Reduction::mean:
      return fold<V, Reduction::mean>(from, i, out);
    case Reduction::max:
      return fold<V, Reduction::max>(from, i, out);
    case Reduction::min:
      return fold<V, Reduction::min>(from, i, out);
    case Reduction::prod:
      return fold<V, Reduction::prod>(from, i, out);
  }
}

template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    reduce_sources_kernel(Sources from, Reduction op, std::int64_t count, T* out) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, packs = count / V;
  for (std::int64_t i = first; i < packs; i += std::int64_t{gridDim.x} * blockDim.x)
    fold_any<V>(from, op, i * V, out);
  if (V > 1 && packs * V + first < count) fold_any<1>(from, op, packs * V + first, out);
}

}  // namespace

cudaError_t reduce_sources(Reduction op, DType dtype, const Sources& from, void* out, std::int64_t count,
                           cudaStream_t stream) {
  if (from.count < 1 || from.count > kMaxSources) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  return for_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int V = kWidth<T>;
    T* const to = static_cast<T*>(out);
    bool aligned = is_aligned<V>(to);
    for (int k = 0; k < from.count; ++k)
      aligned = aligned && is_aligned<V>(static_cast<const T*>(from.at[k]));
    if (aligned)
      return launch(reduce_sources_kernel<V, T>, grid_for((count + V - 1) / V), kThreads, 0, stream, from, op,
                    count, to);
    return launch(reduce_sources_kernel<1, T>, grid_for(count), kThreads, 0, stream, from, op, count, to);
  });
}

}  // namespace brigade::device
