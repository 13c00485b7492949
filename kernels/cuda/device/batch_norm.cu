// SPDX-License-Identifier: MIT
// kernels/cuda/device/batch_norm.cu - batch norm's forward: moments in one pass over x, statistics, and the pass that
// writes the result with what follows it. Read before: batch_norm.h, channels.cuh. Next: batch_norm_grad.cu.
#include "kernels/cuda/device/channels.cuh"

namespace brigade::device {

namespace {

// Each thread sums differences from the first of its values, so that a mean that is large beside the deviations does
// not cancel, and an outlier there spoils few: sums of a handful of f32. All that is merged is double.
template <class T, int V, bool kRows>
__global__ void __launch_bounds__(kThreads) moments_kernel(const T* x, ChannelWalk walk, MomentPieces out) {
  using S = compute_t<T>;
  auto* merged = dynamic_shared<TwoDoubles>();
  double* counts = reinterpret_cast<double*>(merged + kThreads * V);
  const std::int64_t c = walk.channel<V>();
  const unsigned width = walk.columns * V, lane = walk.lane(), own = walk.column() * V;
  S shift[V] = {}, sum[V] = {}, squares[V] = {};
  std::int64_t n = 0;
  if (c < walk.channels)
    walk.for_each<kRows>(c, [&](std::int64_t at) {
      const auto values = load<V>(x + at);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const S value = static_cast<S>(values.v[v]);
        if (n == 0) shift[v] = value;
        const S d = value - shift[v];
        sum[v] += d;
        squares[v] += d * d;
      }
      ++n;
    });
#pragma unroll
  for (int v = 0; v < V; ++v) {
    TwoDoubles mine;
    if (n > 0) {
      const double total = static_cast<double>(sum[v]), mean = total / static_cast<double>(n);
      mine.first = static_cast<double>(shift[v]) + mean;
      mine.second = static_cast<double>(squares[v]) - total * mean;
      if (mine.second < 0) mine.second = 0;
    }
    merged[lane * width + own + v] = mine;
  }
  if (own == 0) counts[lane] = static_cast<double>(n);  // The first column always has channels.
  merge_lanes(merged, counts, walk.lanes, width, MergeMoments{});
  if (lane == 0 && c < walk.channels)
#pragma unroll
    for (int v = 0; v < V; ++v) {
      out.mean[blockIdx.y * walk.channels + c + v] = merged[own + v].first;
      out.squares[blockIdx.y * walk.channels + c + v] = merged[own + v].second;
    }
}

constexpr unsigned kMergeColumns = 8, kMergeLanes = kThreads / kMergeColumns;

// Merges the pieces of kMergeColumns channels and calls finish(channel, moments) on one thread for each.
template <class Finish>
__device__ void merge_pieces(const MomentPieces& in, std::int64_t channels, std::int64_t count,
                             const Finish& finish) {
  auto* merged = dynamic_shared<TwoDoubles>();
  double* counts = reinterpret_cast<double*>(merged + kThreads);
  const unsigned column = threadIdx.x % kMergeColumns, lane = threadIdx.x / kMergeColumns;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kMergeColumns + column;
  TwoDoubles mine;
  double n = 0;
  for (std::int64_t p = lane; p < in.pieces; p += kMergeLanes) {
    const std::int64_t begin = p * in.piece, rest = count - begin;
    const double m = static_cast<double>(rest < in.piece ? (rest > 0 ? rest : 0) : in.piece);
    if (c < channels) MergeMoments{}(mine, {in.mean[p * channels + c], in.squares[p * channels + c]}, n, m);
    n += m;
  }
  merged[threadIdx.x] = mine;
  if (column == 0) counts[lane] = n;
  merge_lanes(merged, counts, kMergeLanes, kMergeColumns, MergeMoments{});
  if (lane == 0 && c < channels) finish(c, merged[column]);
}

__global__ void __launch_bounds__(kThreads)
    merge_kernel(MomentPieces in, std::int64_t channels, std::int64_t count, double* mean, double* squares) {
  merge_pieces(in, channels, count, [=](std::int64_t c, const TwoDoubles& m) {
    mean[c] = m.first;
    squares[c] = m.second;
  });
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(MomentPieces in, std::int64_t channels, std::int64_t count, BatchNormStatistics s) {
  merge_pieces(in, channels, count, [=](std::int64_t c, const TwoDoubles& m) {
    const auto at = [c](const void* p) { return static_cast<double>(static_cast<const S*>(p)[c]); };
    const auto put = [c](void* p, double value) { static_cast<S*>(p)[c] = static_cast<S>(value); };
    const double n = static_cast<double>(count);
    put(s.mean, m.first);
    put(s.invstd, 1 / std::sqrt(m.second / n + s.epsilon));
    // What rounding the mean lost belongs to the shift: beside a tiny deviation it is not small.
    put(s.shift, at(s.beta) - (m.first - at(s.mean)) * (at(s.gamma) * at(s.invstd)));
    if (s.running_mean == nullptr) return;
    const double unbiased = m.second / (n > 1 ? n - 1 : 1);
    put(s.running_mean, (1 - s.momentum) * at(s.running_mean) + s.momentum * m.first);
    put(s.running_var, (1 - s.momentum) * at(s.running_var) + s.momentum * unbiased);
  });
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    inverse_kernel(const S* variance, double epsilon, S* invstd, std::int64_t channels) {
  for (std::int64_t c = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; c < channels;
       c += gridDim.x * blockDim.x)
    invstd[c] = static_cast<S>(1 / std::sqrt(static_cast<double>(variance[c]) + epsilon));
}

template <class T, int V, bool kRows, bool kAdd, bool kRelu>
__global__ void __launch_bounds__(kThreads) apply_kernel(BatchNormApply a, ChannelWalk walk) {
  using S = compute_t<T>;
  using Access = Pack<T, V>;
  const std::int64_t c = walk.channel<V>();
  if (c >= walk.channels) return;
  const OfChannels<V, S> mean(static_cast<const S*>(a.mean), c), shift(static_cast<const S*>(a.shift), c);
  OfChannels<V, S> scale(static_cast<const S*>(a.gamma), c);
  const OfChannels<V, S> invstd(static_cast<const S*>(a.invstd), c);
#pragma unroll
  for (int v = 0; v < V; ++v) scale.at[v] *= invstd.at[v];
  walk.for_each<kRows>(c, [&](std::int64_t at) {
    const Access x = load<V>(static_cast<const T*>(a.x) + at);
    Access added{}, y;
    if constexpr (kAdd) added = load<V>(static_cast<const T*>(a.residual) + at);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      S value = normalized(static_cast<S>(x.v[v]), mean.at[v], scale.at[v], shift.at[v]);
      if constexpr (kAdd) value += static_cast<S>(added.v[v]);
      if constexpr (kRelu) value = value < S(0) ? S(0) : value;  // A NaN stays one.
      y.v[v] = static_cast<T>(value);
    }
    store<V>(static_cast<T*>(a.y) + at, y);
  });
}

dim3 merge_grid(const ChannelLayout& l) {
  return dim3(static_cast<unsigned>((l.channels + kMergeColumns - 1) / kMergeColumns));
}

}  // namespace

cudaError_t channel_moments(DType dtype, const void* x, const ChannelLayout& l, MomentPieces out,
                            cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return with_walk<T>(
        l,
        [&](auto width, auto rows, const ChannelWalk& walk, dim3 grid) {
          return launch(moments_kernel<T, width(), rows()>, grid, dim3(kThreads),
                        merge_bytes(kThreads * width(), walk.lanes), stream, static_cast<const T*>(x), walk,
                        out);
        },
        x);
  });
}

cudaError_t merge_moments(const MomentPieces& in, const ChannelLayout& l, double* mean, double* squares,
                          cudaStream_t stream) {
  return launch(merge_kernel, merge_grid(l), dim3(kThreads), merge_bytes(kThreads, kMergeLanes), stream, in,
                l.channels, l.count(), mean, squares);
}

cudaError_t batch_norm_statistics(DType dtype, const MomentPieces& in, const ChannelLayout& l,
                                  const BatchNormStatistics& s, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using S = compute_t<typename decltype(tag)::type>;
    return launch(statistics_kernel<S>, merge_grid(l), dim3(kThreads), merge_bytes(kThreads, kMergeLanes),
                  stream, in, l.channels, l.count(), s);
  });
}

cudaError_t inverse_deviation(DType dtype, const void* variance, double epsilon, void* invstd,
                              std::int64_t channels, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using S = compute_t<typename decltype(tag)::type>;
    return launch(inverse_kernel<S>, dim3(grid_for(channels)), dim3(kThreads), 0, stream,
                  static_cast<const S*>(variance), epsilon, static_cast<S*>(invstd), channels);
  });
}

cudaError_t batch_norm_apply(DType dtype, const BatchNormApply& a, const ChannelLayout& l,
                             cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return with_walk<T>(
        l,
        [&](auto width, auto rows, const ChannelWalk& walk, dim3 grid) {
          return with_constant(a.residual != nullptr, [&](auto add) {
            return with_constant(a.relu, [&](auto relu) {
              return launch(apply_kernel<T, width(), rows(), add(), relu()>, grid, dim3(kThreads), 0, stream,
                            a, walk);
            });
          });
        },
        a.x, a.residual, a.y);
  });
}

}  // namespace brigade::device
