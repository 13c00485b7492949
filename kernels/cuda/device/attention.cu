// SPDX-License-Identifier: MIT
// kernels/cuda/device/attention.cu - attention in one kernel (Dao et al., "FlashAttention", 2022): a block keeps a tile
// of queries and goes over tiles of keys and values; the softmax of a row is corrected as larger scores come up. A row
// is its block's alone, so there are no atomics. Formulas: kernels/reference/attention.cpp. Read before: attention.cuh.
#include "kernels/cuda/device/attention.cuh"

namespace brigade::device {
namespace {

template <class Layout, class T, class C>
__global__ void __launch_bounds__(Layout::kThreads)
    attention_kernel(AttentionSize size, AttentionOptions options, bool packs, HeadRows q, HeadRows k,
                     HeadRows v, HeadRows out, C* log_sums) {
  constexpr int kRows = Layout::kRows;
  C* own = dynamic_shared<C>();
  C* others = own + Layout::kTile;  // Keys, then values.
  C* weights = others + Layout::kTile;
  const std::int64_t tiles = (size.queries + kRows - 1) / kRows, head = blockIdx.x / tiles;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kRows;  // If causal, the longest first.
  const int row = static_cast<int>(threadIdx.x / kGroup), lane = static_cast<int>(threadIdx.x % kGroup);
  const std::int64_t query = first + row;
  const T* keys = head_of<T>(k, size.heads, head);
  const T* values = head_of<T>(v, size.heads, head);
  const C scale = static_cast<C>(options.scale);
  load_tile<Layout>(packs, head_of<T>(q, size.heads, head), q.stride[2], first, size.queries, size.width,
                    own);

  C* const own_weights = weights + row * (kRows + 1);
  C largest = -INFINITY, sum = 0, sums[Layout::kColumns] = {};
  const std::int64_t end = options.causal && first + kRows < size.keys ? first + kRows : size.keys;
  for (std::int64_t start = 0; start < end; start += kRows) {
    __syncthreads();  // Nobody reads the last values any more.
    load_tile<Layout>(packs, keys, k.stride[2], start, size.keys, size.width, others);
    __syncthreads();
    C scores[Layout::kScores], best = largest;
    multiply_rows<Layout>(own + row * Layout::kPitch, others, lane, scores);
#pragma unroll
    for (int i = 0; i < Layout::kScores; ++i) {
      const std::int64_t key = start + lane + i * static_cast<int>(kGroup);
      const bool seen = key < size.keys && (!options.causal || key <= query);
      scores[i] = seen ? scores[i] * scale : static_cast<C>(-INFINITY);
      best = Larger{}(best, scores[i]);
    }
    best = fold_warp<kGroup>(best, Larger{});
    const C shift = best == static_cast<C>(-INFINITY) ? C{0} : best;  // -inf - -inf is no number.
    C part = 0;
#pragma unroll
    for (int i = 0; i < Layout::kScores; ++i) {
      const C power = std::exp(scores[i] - shift);
      own_weights[lane + i * static_cast<int>(kGroup)] = power;
      part += power;
    }
    const C correction = std::exp(largest - shift);
    sum = sum * correction + fold_warp<kGroup>(part, Plus{});
#pragma unroll
    for (int c = 0; c < Layout::kColumns; ++c) sums[c] *= correction;
    largest = best;
    __syncthreads();  // Nobody reads the keys any more.
    load_tile<Layout>(packs, values, v.stride[2], start, size.keys, size.width, others);
    __syncthreads();
    add_rows<Layout>(own_weights, others, lane, sums);
  }
  if (query >= size.queries) return;
  store_row<Layout>(packs, sums, 1 / sum, size.width, lane,
                    head_of<T>(out, size.heads, head) + query * out.stride[2]);
  if (lane == 0) log_sums[head * size.queries + query] = largest + std::log(sum);
}

template <class Layout, class T, class C>
cudaError_t launch_attention(const AttentionSize& size, const AttentionOptions& options, const HeadRows& q,
                             const HeadRows& k, const HeadRows& v, const HeadRows& out, C* log_sums,
                             cudaStream_t stream) {
  const std::int64_t blocks = size.batch * size.heads * tiles_for(size.queries, Layout::kRows);
  return launch(attention_kernel<Layout, T, C>, static_cast<unsigned>(blocks), Layout::kThreads,
                (2 * Layout::kTile + Layout::kWeights) * sizeof(C), stream, size, options,
                rows_pack<T>(size.width, {q, k, v, out}), q, k, v, out, log_sums);
}

}  // namespace

cudaError_t attention(DType dtype, const AttentionSize& size, const AttentionOptions& options,
                      const HeadRows& q, const HeadRows& k, const HeadRows& v, const HeadRows& out,
                      void* log_sums, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    // As many rows as 48 KiB of shared memory hold, which every device has.
    constexpr int kRows = sizeof(C) == 4 ? 32 : 16;
    const auto run = [&](auto tiles) {
      return launch_attention<decltype(tiles), T>(size, options, q, k, v, out, static_cast<C*>(log_sums),
                                                  stream);
    };
    return size.width <= 64 ? run(Tiles<C, kRows, 8>{}) : run(Tiles<C, kRows, 16>{});
  });
}

}  // namespace brigade::device
