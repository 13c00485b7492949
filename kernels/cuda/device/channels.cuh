// SPDX-License-Identifier: MIT
// kernels/cuda/device/channels.cuh - how threads share the values of an activation when each channel is treated by
// itself. A block is `columns` x `lanes` threads: a column owns V neighbouring channels, whose parameters it loads
// once, and a lane every lanes-th value of them in the block's piece. In rows V channels are one 16-byte access. In
// planes a block has one channel, and its lanes run along the pixels. Used by batch_norm*.cu.
#pragma once

#include <cmath>

#include "kernels/cuda/device/batch_norm.h"
#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace brigade::device {

/// Some channels' parameters, each read once by a thread; null is all zeros.
template <int V, class S>
struct OfChannels {
  S at[V];

  __device__ OfChannels(const S* from, std::int64_t c) {
#pragma unroll
    for (int v = 0; v < V; ++v) at[v] = from == nullptr ? S(0) : from[c + v];
  }
};

/// A launch over a layout, and in it the calling thread's share.
struct ChannelWalk {
  std::int64_t channels, count, piece;
  Divider pixels;
  unsigned columns, lanes;

  __device__ unsigned column() const { return threadIdx.x % columns; }
  __device__ unsigned lane() const { return threadIdx.x / columns; }
  template <int V>
  __device__ std::int64_t channel() const {
    return (static_cast<std::int64_t>(blockIdx.x) * columns + column()) * V;
  }
  __device__ std::int64_t first() const { return blockIdx.y * piece + lane(); }
  __device__ std::int64_t last() const {
    const std::int64_t end = (blockIdx.y + std::int64_t{1}) * piece;
    return end < count ? end : count;
  }
  /// Where value `i` of channel `c` lies.
  template <bool kRows>
  __device__ std::int64_t position(std::int64_t i, std::int64_t c) const {
    if constexpr (kRows) return i * channels + c;
    const std::int64_t image = pixels.divide(static_cast<std::uint32_t>(i));  // Callers have fewer than 2^31.
    return (image * channels + c - image) * pixels.divisor + i;
  }

  /// body(position) for each of the thread's values of channel c.
  template <bool kRows, class Body>
  __device__ void for_each(std::int64_t c, const Body& body) const {
    for (std::int64_t i = first(); i < last(); i += lanes) body(position<kRows>(i, c));
  }
};

/// Calls f(V as a constant, kRows as a constant, walk, grid) with the widest access that all `pointers` allow.
template <class T, class F, class... Pointers>
cudaError_t with_walk(const ChannelLayout& l, const F& f, const Pointers*... pointers) {
  if (!l.rows && l.count() >= std::int64_t{1} << 31) return cudaErrorInvalidValue;  // See position().
  constexpr int kWide = kWidth<T>;
  const bool wide =
      l.rows && l.channels % kWide == 0 && (is_aligned<kWide>(static_cast<const T*>(pointers)) && ...);
  const std::int64_t groups = wide ? l.channels / kWide : l.channels;  // One a thread.
  const std::int64_t most = !l.rows ? 1 : wide ? 8 : 32;               // 128 bytes side by side.
  unsigned columns = 1;
  while (columns < most && columns < groups) columns *= 2;
  const std::int64_t pieces = channel_pieces(l);
  const ChannelWalk walk{.channels = l.channels,
                         .count = l.count(),
                         .piece = channel_piece(l),
                         .pixels = Divider(std::max<std::int64_t>(l.pixels, 1)),
                         .columns = columns,
                         .lanes = kThreads / columns};
  const dim3 grid(static_cast<unsigned>((groups + columns - 1) / columns), static_cast<unsigned>(pieces));
  if (wide) return f(std::integral_constant<int, kWide>{}, std::true_type{}, walk, grid);
  if (l.rows) return f(std::integral_constant<int, 1>{}, std::true_type{}, walk, grid);
  return f(std::integral_constant<int, 1>{}, std::false_type{}, walk, grid);
}

/// Calls f(flag as a constant).
template <class F>
cudaError_t with_constant(bool flag, const F& f) {
  return flag ? f(std::true_type{}) : f(std::false_type{});
}

/// One channel's share of moments (or of two sums).
struct TwoDoubles {
  double first = 0, second = 0;
};

/// Merges values[lane * width + w] of all lanes into those of lane 0, eight at a time: merge(to, from, count of to,
/// count of from). counts[lane] is how many values stand behind a lane; it has room for twice the lanes. All threads of
/// the block call it, and find the result when it returns. Always in the same order.
template <class Merge>
__device__ void merge_lanes(TwoDoubles* values, double* counts, unsigned lanes, unsigned width,
                            const Merge& merge) {
  __syncthreads();
  while (lanes > 1) {
    const unsigned left = lanes > 8 ? lanes / 8 : 1;
    double* const merged_counts = counts + lanes;  // Others still read the old ones.
    for (unsigned t = threadIdx.x; t < left * width; t += kThreads) {
      const unsigned lane = t / width, w = t % width;
      TwoDoubles mine = values[t];
      double n = counts[lane];
      for (unsigned from = lane + left; from < lanes; from += left) {
        merge(mine, values[from * width + w], n, counts[from]);
        n += counts[from];
      }
      values[t] = mine;
      if (w == 0) merged_counts[lane] = n;
    }
    __syncthreads();
    counts = merged_counts;
    lanes = left;
  }
}

/// Dynamic shared memory for it.
constexpr std::size_t merge_bytes(unsigned pairs, unsigned lanes) {
  return pairs * sizeof(TwoDoubles) + 2 * lanes * sizeof(double);
}

/// Moments of two groups of values as one group's, by Chan, Golub and LeVeque (1979).
struct MergeMoments {
  __device__ void operator()(TwoDoubles& to, const TwoDoubles& from, double n, double m) const {
    if (m == 0) return;
    const double share = m / (n + m), delta = from.first - to.first;
    to.first += delta * share;
    to.second += from.second + delta * delta * n * share;
  }
};

struct MergeSums {
  __device__ void operator()(TwoDoubles& to, const TwoDoubles& from, double, double) const {
    to.first += from.first;
    to.second += from.second;
  }
};

/// The value of bn before rounding and before what follows. Forward writes it and backward asks for its sign: one
/// function with a fused multiplication, so that both get the same bits.
template <class S>
__device__ S normalized(S x, S mean, S scale, S shift) {
  return std::fma(x - mean, scale, shift);
}

/// The largest S that is zero once it is stored as a T: the ReLU was open above it.
template <class T>
__device__ constexpr compute_t<T> rounds_to_zero() {
  if constexpr (std::is_same_v<T, bf16>) return 0x1p-134f;
  if constexpr (std::is_same_v<T, f16>) return 0x1p-25f;
  return 0;
}

}  // namespace brigade::device
