// SPDX-License-Identifier: MIT
// kernels/cuda/device/attention_grad.cu - the gradient of attention in three kernels: the sums that each row of softmax
// needs, dq by blocks that keep queries and go over keys, dk and dv by blocks that keep keys and go over queries.
// Computing scores twice is what it costs to have no atomics: the same bits every time. Derivatives:
// kernels/reference/attention.cpp. Read before: attention.cu.
#include "kernels/cuda/device/attention.cuh"

namespace brigade::device {
namespace {

constexpr unsigned kRowsTogether = kThreads / kGroup;

// deltas = dout · out, a row of which is a group's.
template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(AttentionSize size, HeadRows out, HeadRows dout, C* deltas) {
  const std::int64_t rows = size.batch * size.heads * size.queries;
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsTogether + threadIdx.x / kGroup;
  const unsigned lane = threadIdx.x % kGroup;
  C sum = 0;
  if (row < rows) {
    const std::int64_t head = row / size.queries, query = row % size.queries;
    const T* a = head_of<T>(out, size.heads, head) + query * out.stride[2];
    const T* b = head_of<T>(dout, size.heads, head) + query * dout.stride[2];
    for (std::int64_t c = lane; c < size.width; c += kGroup) sum += convert<C>(a[c]) * convert<C>(b[c]);
  }
  sum = fold_warp<kGroup>(sum, Plus{});
  if (row < rows && lane == 0) deltas[row] = sum;
}

// Own rows: queries with dout, or keys with values (kOfKeys). The others are the other ones. In both cases
//   p = exp(scale a_own · a_other - log_sum),   ds = p (b_own · b_other - delta)
// and the sums are Σ ds a_other, which is dq or dk, and for keys Σ p b_other, which is dv.
template <class Layout, bool kOfKeys, class T, class C>
__global__ void __launch_bounds__(Layout::kThreads)
    gradient_kernel(AttentionSize size, AttentionOptions options, bool packs, AttentionGradient tensors) {
  constexpr int kRows = Layout::kRows;
  C* own_a = dynamic_shared<C>();
  C *own_b = own_a + Layout::kTile, *other_a = own_b + Layout::kTile, *other_b = other_a + Layout::kTile;
  C* weights = other_b + Layout::kTile;
  const std::int64_t own_count = kOfKeys ? size.keys : size.queries;
  const std::int64_t other_count = kOfKeys ? size.queries : size.keys;
  const std::int64_t tiles = (own_count + kRows - 1) / kRows, head = blockIdx.x / tiles;
  const std::int64_t tile = blockIdx.x % tiles, first = (kOfKeys ? tile : tiles - 1 - tile) * kRows;
  const int row = static_cast<int>(threadIdx.x / kGroup), lane = static_cast<int>(threadIdx.x % kGroup);
  const C scale = static_cast<C>(options.scale);
  const C* log_sums = static_cast<const C*>(tensors.log_sums) + head * size.queries;
  const C* deltas = static_cast<const C*>(tensors.deltas) + head * size.queries;

  const auto take = [&](const HeadRows& rows, std::int64_t from, std::int64_t count, C* to) {
    load_tile<Layout>(packs, static_cast<const T*>(head_of<T>(rows, size.heads, head)), rows.stride[2], from,
                      count, size.width, to);
  };
  take(kOfKeys ? tensors.k : tensors.q, first, own_count, own_a);
  take(kOfKeys ? tensors.v : tensors.dout, first, own_count, own_b);

  C* const slopes = weights + row * (kRows + 1);
  C* const probabilities = slopes + Layout::kWeights;
  C a_sums[Layout::kColumns] = {}, b_sums[Layout::kColumns] = {};
  // Of a causal one, queries see no later tile, and keys are seen by no earlier one.
  const std::int64_t begin = kOfKeys && options.causal ? first : 0;
  const bool cut = !kOfKeys && options.causal && first + kRows < other_count;
  const std::int64_t end = cut ? first + kRows : other_count;
  for (std::int64_t start = begin; start < end; start += kRows) {
    __syncthreads();  // Nobody reads the last tiles any more.
    take(kOfKeys ? tensors.q : tensors.k, start, other_count, other_a);
    take(kOfKeys ? tensors.dout : tensors.v, start, other_count, other_b);
    __syncthreads();
    C scores[Layout::kScores], slope[Layout::kScores];
    multiply_rows<Layout>(own_a + row * Layout::kPitch, other_a, lane, scores);
    multiply_rows<Layout>(own_b + row * Layout::kPitch, other_b, lane, slope);
#pragma unroll
    for (int i = 0; i < Layout::kScores; ++i) {
      const int column = lane + i * static_cast<int>(kGroup);
      const std::int64_t own = first + row, other = start + column;
      const std::int64_t query = kOfKeys ? other : own, key = kOfKeys ? own : other;
      const bool seen = own < own_count && other < other_count && (!options.causal || key <= query);
      const C p = seen ? std::exp(scores[i] * scale - log_sums[query]) : C{0};
      slopes[column] = seen ? p * (slope[i] - deltas[query]) : C{0};
      if constexpr (kOfKeys) probabilities[column] = p;
    }
    __syncwarp();  // A row's weights are its group's affair, and a group lies within a warp.
    add_rows<Layout>(slopes, other_a, lane, a_sums);
    if constexpr (kOfKeys) add_rows<Layout>(probabilities, other_b, lane, b_sums);
  }
  if (first + row >= own_count) return;
  const auto give = [&](const HeadRows& rows, const C(&sums)[Layout::kColumns], C factor) {
    store_row<Layout>(packs, sums, factor, size.width, lane,
                      head_of<T>(rows, size.heads, head) + (first + row) * rows.stride[2]);
  };
  give(kOfKeys ? tensors.dk : tensors.dq, a_sums, scale);
  if constexpr (kOfKeys) give(tensors.dv, b_sums, C{1});
}

template <class Layout, bool kOfKeys, class T, class C>
cudaError_t launch_gradient(const AttentionSize& size, const AttentionOptions& options,
                            const AttentionGradient& tensors, cudaStream_t stream) {
  const bool packs = rows_pack<T>(
      size.width, {tensors.q, tensors.k, tensors.v, tensors.dout, tensors.dq, tensors.dk, tensors.dv});
  const std::int64_t tiles = tiles_for(kOfKeys ? size.keys : size.queries, Layout::kRows);
  return launch(gradient_kernel<Layout, kOfKeys, T, C>,
                static_cast<unsigned>(size.batch * size.heads * tiles), Layout::kThreads,
                (4 * Layout::kTile + 2 * Layout::kWeights) * sizeof(C), stream, size, options, packs,
                tensors);
}

}  // namespace

cudaError_t attention_grad(DType dtype, const AttentionSize& size, const AttentionOptions& options,
                           const AttentionGradient& tensors, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const std::int64_t rows = size.batch * size.heads * size.queries;
    const cudaError_t launched =
        launch(delta_kernel<T, C>, static_cast<unsigned>(tiles_for(rows, kRowsTogether)), kThreads, 0, stream,
               size, tensors.out, tensors.dout, static_cast<C*>(tensors.deltas));
    if (launched != cudaSuccess) return launched;
    // As many rows as 48 KiB of shared memory hold, which every device has.
    constexpr int kRows = sizeof(C) == 4 ? 32 : 16;
    const auto run = [&](auto tiles) {
      using Layout = decltype(tiles);
      const cudaError_t first = launch_gradient<Layout, false, T, C>(size, options, tensors, stream);
      return first != cudaSuccess ? first
                                  : launch_gradient<Layout, true, T, C>(size, options, tensors, stream);
    };
    return size.width <= 64 ? run(Tiles<C, kRows, 8>{}) : run(Tiles<C, kRows / 2, 16>{});
  });
}

}  // namespace brigade::device
