// SPDX-License-Identifier: MIT
// kernels/cuda/device/batch_norm_grad.cu - batch norm's gradient in two steps (kernels/kernels.h): the sums of a
// channel, and the pass that writes dx. With dz the gradient by bn(x):
//   dbeta = sum(dz),   dgamma = invstd sum(dz (x - mean)),   dx = a dz + b (x - mean) + k
//   a = gamma invstd,   b = -a invstd dgamma / count,   k = -a dbeta / count
// Read before: batch_norm.h, channels.cuh.
#include "kernels/cuda/device/channels.cuh"

namespace brigade::device {

namespace {

// Where the gradient goes on to bn(x).
enum class Mask { none, from_x, from_y };

template <class T, int V, bool kRows, Mask kMask>
__global__ void sums_kernel(BatchNormGrad g, ChannelWalk walk, TwoDoubles* partial, T* dz) {
  using S = compute_t<T>;
  using Access = Pack<T, V>;
  auto* merged = dynamic_shared<TwoDoubles>();
  double* counts = reinterpret_cast<double*>(merged + kThreads * V);
  const std::int64_t c = walk.channel<V>();
  const unsigned width = walk.columns * V, lane = walk.lane(), own = walk.column() * V;
  S sum[V] = {}, dot[V] = {};
  if (c < walk.channels) {
    const OfChannels<V, S> mean(static_cast<const S*>(g.mean), c), shift(static_cast<const S*>(g.shift), c);
    const OfChannels<V, S> invstd(static_cast<const S*>(g.invstd), c);
    OfChannels<V, S> scale(static_cast<const S*>(g.gamma), c);
#pragma unroll
    for (int v = 0; v < V; ++v) scale.at[v] *= invstd.at[v];
    walk.for_each<kRows>(c, [&](std::int64_t at) {
      const Access x = load<V>(static_cast<const T*>(g.x) + at);
      Access d = load<V>(static_cast<const T*>(g.dy) + at), y{};
      if constexpr (kMask == Mask::from_y) y = load<V>(static_cast<const T*>(g.y) + at);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const S value = static_cast<S>(x.v[v]);
        bool open = true;
        if constexpr (kMask == Mask::from_x)
          open = normalized(value, mean.at[v], scale.at[v], shift.at[v]) > rounds_to_zero<T>();
        if constexpr (kMask == Mask::from_y) open = static_cast<S>(y.v[v]) > S(0);
        if (!open) d.v[v] = static_cast<T>(S(0));
        sum[v] += static_cast<S>(d.v[v]);
        dot[v] += static_cast<S>(d.v[v]) * (value - mean.at[v]);
      }
      if constexpr (kMask == Mask::from_y) store<V>(dz + at, d);
    });
  }
#pragma unroll
  for (int v = 0; v < V; ++v)
    merged[lane * width + own + v] = {static_cast<double>(sum[v]), static_cast<double>(dot[v])};
  if (own == 0) counts[lane] = 0;  // Sums need none.
  merge_lanes(merged, counts, walk.lanes, width, MergeSums{});
  if (lane == 0 && c < walk.channels)
#pragma unroll
    for (int v = 0; v < V; ++v) partial[blockIdx.y * walk.channels + c + v] = merged[own + v];
}

constexpr unsigned kMergeColumns = 8, kMergeLanes = kThreads / kMergeColumns;

template <class S>
__global__ void __launch_bounds__(kThreads)
    finish_sums_kernel(const TwoDoubles* partial, std::int64_t pieces, std::int64_t channels, const S* invstd,
                       S* dgamma, S* dbeta) {
  auto* merged = dynamic_shared<TwoDoubles>();
  double* counts = reinterpret_cast<double*>(merged + kThreads);
  const unsigned column = threadIdx.x % kMergeColumns, lane = threadIdx.x / kMergeColumns;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kMergeColumns + column;
  TwoDoubles mine;
  if (c < channels)
    for (std::int64_t p = lane; p < pieces; p += kMergeLanes)
      MergeSums{}(mine, partial[p * channels + c], 0, 0);
  merged[threadIdx.x] = mine;
  if (column == 0) counts[lane] = 0;
  merge_lanes(merged, counts, kMergeLanes, kMergeColumns, MergeSums{});
  if (lane == 0 && c < channels) {
    dbeta[c] = static_cast<S>(merged[column].first);
    dgamma[c] = static_cast<S>(merged[column].second * static_cast<double>(invstd[c]));
  }
}

// The mask was applied already where it came from y: dy is dz then.
template <class T, int V, bool kRows, bool kMasked>
__global__ void __launch_bounds__(kThreads)
    grad_input_kernel(BatchNormGrad g, ChannelWalk walk, const void* dgamma, const void* dbeta, double count,
                      T* dx) {
  using S = compute_t<T>;
  using Access = Pack<T, V>;
  const std::int64_t c = walk.channel<V>();
  if (c >= walk.channels) return;
  const OfChannels<V, S> mean(static_cast<const S*>(g.mean), c), shift(static_cast<const S*>(g.shift), c);
  const OfChannels<V, S> invstd(static_cast<const S*>(g.invstd), c);
  OfChannels<V, S> a(static_cast<const S*>(g.gamma), c), b(static_cast<const S*>(dgamma), c),
      k(static_cast<const S*>(dbeta), c);
  const S n = static_cast<S>(count);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    a.at[v] *= invstd.at[v];
    b.at[v] = -a.at[v] * invstd.at[v] * (b.at[v] / n);
    k.at[v] = -a.at[v] * (k.at[v] / n);
  }
  walk.for_each<kRows>(c, [&](std::int64_t at) {
    const Access x = load<V>(static_cast<const T*>(g.x) + at);
    Access d = load<V>(static_cast<const T*>(g.dy) + at);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const S value = static_cast<S>(x.v[v]);
      S dz = static_cast<S>(d.v[v]);
      if constexpr (kMasked)  // Forward's scale is gamma invstd, which is a.
        if (!(normalized(value, mean.at[v], a.at[v], shift.at[v]) > rounds_to_zero<T>())) dz = S(0);
      d.v[v] = static_cast<T>(std::fma(a.at[v], dz, std::fma(b.at[v], value - mean.at[v], k.at[v])));
    }
    store<V>(dx + at, d);
  });
}

}  // namespace

cudaError_t batch_norm_grad_sums(DType dtype, const BatchNormGrad& g, const ChannelLayout& l, double* partial,
                                 void* dz, void* dgamma, void* dbeta, cudaStream_t stream) {
  auto* pairs = reinterpret_cast<TwoDoubles*>(partial);
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const auto sums = [&](auto mask) {
      return with_walk<T>(
          l,
          [&](auto width, auto rows, const ChannelWalk& walk, dim3 grid) {
            const std::size_t bytes = merge_bytes(kThreads * width(), walk.lanes);
            return launch(sums_kernel<T, width(), rows(), mask()>, grid, dim3(kThreads), bytes, stream, g,
                          walk, pairs, static_cast<T*>(dz));
          },
          g.x, g.dy, g.y, dz);
    };
    const cudaError_t error = g.y != nullptr       ? sums(std::integral_constant<Mask, Mask::from_y>{})
                              : g.shift != nullptr ? sums(std::integral_constant<Mask, Mask::from_x>{})
                                                   : sums(std::integral_constant<Mask, Mask::none>{});
    if (error != cudaSuccess) return error;
    const dim3 grid(static_cast<unsigned>((l.channels + kMergeColumns - 1) / kMergeColumns));
    return launch(finish_sums_kernel<S>, grid, dim3(kThreads), merge_bytes(kThreads, kMergeLanes), stream,
                  static_cast<const TwoDoubles*>(pairs), channel_pieces(l), l.channels,
                  static_cast<const S*>(g.invstd), static_cast<S*>(dgamma), static_cast<S*>(dbeta));
  });
}

cudaError_t batch_norm_grad_input(DType dtype, const BatchNormGrad& g, const ChannelLayout& l,
                                  const void* dgamma, const void* dbeta, double count, void* dx,
                                  cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return with_walk<T>(
        l,
        [&](auto width, auto rows, const ChannelWalk& walk, dim3 grid) {
          return with_constant(g.shift != nullptr && g.y == nullptr, [&](auto masked) {
            return launch(grad_input_kernel<T, width(), rows(), masked()>, grid, dim3(kThreads), 0, stream, g,
                          walk, dgamma, dbeta, count, static_cast<T*>(dx));
          });
        },
        g.x, g.dy, dx);
  });
}

}  // namespace brigade::device
