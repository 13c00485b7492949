// SPDX-License-Identifier: MIT
// kernels/cuda/device/map.cuh - out[i] = f(a[i], b[i], …) over any strides: the one kernel behind everything
// elementwise. Where all operands lie dense (or still) along the innermost dim, a thread handles 16 bytes at a time.
// Read before: walk.cuh. Read next: unary.cu.
#pragma once

#include <utility>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace brigade::device {

/// What f gets an argument from: memory or, without any, one value for all elements.
template <class T>
struct Operand {
  const T* data = nullptr;
  compute_t<T> value{};
};

template <class C, int V>
struct Values {
  C v[V];
};

template <int V, class T>
__device__ Values<compute_t<T>, V> fetch(const Operand<T>& x, std::int64_t at, bool constant) {
  using C = compute_t<T>;
  Values<C, V> values;
  if constexpr (V > 1)
    if (x.data != nullptr && !constant) {
      const Pack<T, V> pack = load<V>(x.data + at);
#pragma unroll
      for (int v = 0; v < V; ++v) values.v[v] = convert<C>(pack.v[v]);
      return values;
    }
  const C one = x.data != nullptr ? convert<C>(x.data[at]) : x.value;
#pragma unroll
  for (int v = 0; v < V; ++v) values.v[v] = one;
  return values;
}

template <int V, class F, class Out, class... C>
__device__ void apply(const F& f, Out* to, const Values<C, V>&... xs) {
  Pack<Out, V> result;
#pragma unroll
  for (int v = 0; v < V; ++v) result.v[v] = convert<Out>(f(xs.v[v]...));
  store<V>(to, result);
}

template <int V, class F, class Out, class... In, std::size_t... I>
__device__ void apply_at(std::index_sequence<I...>, const F& f, const std::int64_t* at, const bool* constant,
                         Out* out, const Operand<In>&... in) {
  apply<V>(f, out + at[0], fetch<V>(in, at[I + 1], constant[I + 1])...);
}

template <int V, class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    map_kernel(F f, Offsets<1 + sizeof...(In)> offsets, unsigned tail, Out* out, Operand<In>... in) {
  constexpr std::index_sequence_for<In...> inputs{};
  std::int64_t at[1 + sizeof...(In)];
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::uint32_t i = first; i < offsets.numel; i += gridDim.x * blockDim.x) {
    offsets.find(i, at);
    apply_at<V>(inputs, f, at, offsets.constant, out, in...);
  }
  // Of a single dense run: what is left behind its last whole pack.
  if (V > 1 && first < tail) {
#pragma unroll
    for (int n = 0; n < 1 + static_cast<int>(sizeof...(In)); ++n)
      at[n] = offsets.constant[n] ? 0 : std::int64_t{offsets.numel} * V + first;
    apply_at<1>(inputs, f, at, offsets.constant, out, in...);
  }
}

/// Launches out = f(in…), packs of V elements where operands allow it.
template <int V, class F, class Out, class... In>
cudaError_t map(const F& f, const Strided<1 + sizeof...(In)>& walk, cudaStream_t stream, Out* out,
                Operand<In>... in) {
  if (walk.numel == 0) return cudaSuccess;
  if constexpr (V > 1) {
    int n = 0;
    bool wide = packs<V>(walk, 0, out);
    ((wide = wide && (++n, in.data == nullptr || packs<V>(walk, n, in.data))), ...);
    if (wide) {
      const Offsets<1 + sizeof...(In)> offsets(walk, V);
      const auto tail = static_cast<unsigned>(walk.size[walk.dims - 1] % V);
      return launch(map_kernel<V, F, Out, In...>, grid_for(std::max(offsets.numel, 1u)), kThreads, 0, stream,
                    f, offsets, tail, out, in...);
    }
  }
  const Offsets<1 + sizeof...(In)> offsets(walk, 1);
  return launch(map_kernel<1, F, Out, In...>, grid_for(offsets.numel), kThreads, 0, stream, f, offsets, 0u,
                out, in...);
}

/// The width for elements of all these types: 16 bytes of the narrowest.
template <class... T>
inline constexpr int kCommonWidth = std::max({kWidth<T>...});

}  // namespace brigade::device
