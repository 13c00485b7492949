// SPDX-License-Identifier: MIT
// kernels/cuda/device/reduce.cu - reductions over any dims and strides. The threads of a block form a rectangle: some
// outputs beside each other times some positions of each. Neighbouring threads take what lies side by side in memory,
// outputs or positions. Long reductions to few outputs are cut into pieces that a second launch folds in order.
// Totals are wide, as on the CPU; 16-bit floats are added in f32 for a short while before. Read before:
// kernels/functor/reduce.h.
#include <cmath>

#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/fold.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/functor/reduce.h"

namespace brigade::device {
namespace {

constexpr std::uint32_t kRun = 32;  // Additions of 16-bit floats in f32 before the double total takes them.

// How the threads of a block are shared between outputs and positions; both are powers of two.
struct Rectangle {
  std::uint32_t outputs, positions;
  bool outputs_fastest;

  __device__ std::uint32_t output() const {
    return outputs_fastest ? threadIdx.x % outputs : threadIdx.x / positions;
  }
  __device__ std::uint32_t position() const {
    return outputs_fastest ? threadIdx.x / outputs : threadIdx.x % positions;
  }
  __device__ std::uint32_t thread(std::uint32_t output, std::uint32_t position) const {
    return outputs_fastest ? position * outputs + output : output * positions + position;
  }
};

// A tree over the positions of each output, in shared memory; f(a, b) keeps a's place in front of b's.
template <class T, class F>
__device__ T fold_positions(const Rectangle& r, T value, const F& f) {
  __shared__ T values[kThreads];
  __syncthreads();
  values[threadIdx.x] = value;
  for (std::uint32_t half = r.positions / 2; half > 0; half /= 2) {
    __syncthreads();
    if (r.position() < half)
      values[threadIdx.x] = f(values[threadIdx.x], values[r.thread(r.output(), r.position() + half)]);
  }
  return values[threadIdx.x];
}

template <class F, class T, class Sum, class Wide>
__device__ Wide fold_strided(F f, const T* x, const Offsets<1>& reduced, std::uint32_t begin,
                             std::uint32_t end, std::uint32_t step) {
  Wide total = F::template start<Wide>();
  for (std::uint32_t i = begin; i < end;) {
    Sum run = F::template start<Sum>();
    for (std::uint32_t k = 0; k < kRun && i < end; ++k, i += step) {
      std::int64_t at;
      reduced.find(i, &at);
      run = f(run, convert<Sum>(x[at]));
    }
    total = f(total, static_cast<Wide>(run));
  }
  return total;
}

// out[k], or partial[piece][k] where there are several pieces.
template <class F, class T, class Out>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(F f, Rectangle r, Offsets<2> kept, Offsets<1> reduced, std::uint32_t pieces,
                  std::uint32_t length, const T* x, Out* out, wide_t<T>* partial) {
  using Wide = wide_t<T>;
  using Sum = std::conditional_t<is_half_v<T>, float, Wide>;
  const std::uint32_t groups = (kept.numel + r.outputs - 1) / r.outputs, all = groups * pieces;
  for (std::uint32_t item = blockIdx.x; item < all; item += gridDim.x) {
    const std::uint32_t piece = item / groups, k = item % groups * r.outputs + r.output();
    Wide total = F::template start<Wide>();
    std::int64_t at[2] = {0, 0};
    if (k < kept.numel) {
      kept.find(k, at);
      const std::uint32_t begin = piece * length, end = std::min(begin + length, reduced.numel);
      total = fold_strided<F, T, Sum, Wide>(f, x + at[1], reduced, begin + r.position(), end, r.positions);
    }
    total = fold_positions(r, total, f);
    if (r.position() == 0 && k < kept.numel) {
      if (pieces == 1)
        out[at[0]] = convert<Out>(F::template finish<Wide>(total, reduced.numel));
      else
        partial[std::uint64_t{piece} * kept.numel + k] = total;
    }
  }
}

template <class F, class Wide, class Out>
__global__ void __launch_bounds__(kThreads)
    fold_pieces_kernel(F f, Offsets<2> kept, std::uint32_t pieces, std::int64_t count, const Wide* partial,
                       Out* out) {
  for (std::uint32_t k = blockIdx.x * blockDim.x + threadIdx.x; k < kept.numel; k += gridDim.x * blockDim.x) {
    Wide total = partial[k];
    for (std::uint32_t p = 1; p < pieces; ++p) total = f(total, partial[std::uint64_t{p} * kept.numel + k]);
    std::int64_t at[2];
    kept.find(k, at);
    out[at[0]] = convert<Out>(F::template finish<Wide>(total, count));
  }
}

// Wide enough along what lies dense for whole lines; the rest of the threads go to the other side.
Rectangle rectangle(std::int64_t outputs, std::int64_t positions, bool outputs_fastest) {
  Rectangle r{1, 1, outputs_fastest};
  std::uint32_t& fast = outputs_fastest ? r.outputs : r.positions;
  std::uint32_t& slow = outputs_fastest ? r.positions : r.outputs;
  const std::int64_t fast_size = outputs_fastest ? outputs : positions;
  const std::uint32_t fast_most = outputs_fastest ? 32 : kThreads;
  while (fast < fast_most && fast < fast_size) fast *= 2;
  slow = kThreads / fast;
  return r;
}

template <class T>
struct Best {
  T value;
  std::int64_t index;
};

// The one in front wins unless it is beaten; an index of -1 is nobody.
struct Winner {
  template <class T>
  __device__ Best<T> operator()(const Best<T>& a, const Best<T>& b) const {
    if (b.index < 0) return a;
    if (a.index < 0) return b;
    const bool a_in_front = a.index < b.index;
    const Best<T>&first = a_in_front ? a : b, &second = a_in_front ? b : a;
    return functor::beats(second.value, first.value) ? second : first;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) argmax_kernel(Rectangle r, Offsets<2> kept, std::int64_t count,
                                                          std::int64_t step, const T* x, std::int64_t* out) {
  using C = compute_t<T>;
  const std::uint32_t groups = (kept.numel + r.outputs - 1) / r.outputs;
  for (std::uint32_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const std::uint32_t k = group * r.outputs + r.output();
    Best<C> best{C{}, -1};
    std::int64_t at[2] = {0, 0};
    if (k < kept.numel) {
      kept.find(k, at);
      for (std::int64_t i = r.position(); i < count; i += r.positions)
        best = Winner{}(best, Best<C>{convert<C>(x[at[1] + i * step]), i});
    }
    best = fold_positions(r, best, Winner{});
    if (r.position() == 0 && k < kept.numel) out[at[0]] = best.index;
  }
}

// Squares of 16-bit floats are exact in f32; totals are double.
template <class T>
__device__ double square(T x) {
  const auto value = convert<compute_t<T>>(x);
  if constexpr (is_half_v<T>)
    return static_cast<double>(value * value);
  else
    return static_cast<double>(value) * static_cast<double>(value);
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(Offsets<1> offsets, unsigned tail, const T* x, double* partial) {
  double total = 0;
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::uint32_t i = first; i < offsets.numel; i += gridDim.x * blockDim.x) {
    std::int64_t at;
    offsets.find(i, &at);
    const Pack<T, V> pack = load<V>(x + at);
#pragma unroll
    for (int v = 0; v < V; ++v) total += square(pack.v[v]);
  }
  if (V > 1 && first < tail) total += square(x[std::int64_t{offsets.numel} * V + first]);
  total = fold_block(total, 0.0, Plus{});
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    add_kernel(const double* partial, int count, double* sum, bool adds) {
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    total += partial[i];
  total = fold_block(total, 0.0, Plus{});
  if (threadIdx.x == 0) *sum = adds ? *sum + total : total;
}

template <class T, class Out, class F>
cudaError_t launch_reduce(F f, const void* x, void* out, const Reduce& plan, void* partial,
                          cudaStream_t stream) {
  using Wide = wide_t<T>;
  const Offsets<2> kept(plan.kept, 1);
  const Offsets<1> reduced(plan.reduced, 1);
  const Rectangle r = rectangle(plan.kept.numel, plan.reduced.numel, plan.inner_is_kept);
  const auto pieces = static_cast<std::uint32_t>(plan.pieces);
  const std::int64_t items = (plan.kept.numel + r.outputs - 1) / r.outputs * plan.pieces;
  const unsigned blocks =
      static_cast<unsigned>(std::min<std::int64_t>(items, std::int64_t{multiprocessors()} * 64));
  const cudaError_t launched =
      launch(reduce_kernel<F, T, Out>, blocks, kThreads, 0, stream, f, r, kept, reduced, pieces,
             (reduced.numel + pieces - 1) / pieces, static_cast<const T*>(x), static_cast<Out*>(out),
             static_cast<Wide*>(partial));
  if (launched != cudaSuccess || pieces == 1) return launched;
  return launch(fold_pieces_kernel<F, Wide, Out>, grid_for(plan.kept.numel), kThreads, 0, stream, f, kept,
                pieces, plan.reduced.numel, static_cast<const Wide*>(partial), static_cast<Out*>(out));
}

}  // namespace

cudaError_t reduce(Reduction op, DType from, DType to, const void* x, void* out, const Reduce& plan,
                   void* partial, cudaStream_t stream) {
  cudaError_t result = cudaErrorInvalidValue;
  functor::dispatch_reduction(op, [&](auto f) {
    result = for_any(from, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (from == to) return launch_reduce<T, T>(f, x, out, plan, partial, stream);
      if constexpr (is_half_v<T> && std::is_same_v<std::remove_cvref_t<decltype(f)>, functor::SumOf>)
        if (to == DType::f32) return launch_reduce<T, float>(f, x, out, plan, partial, stream);
      return cudaErrorInvalidValue;
    });
  });
  return result;
}

cudaError_t argmax(DType dtype, const void* x, std::int64_t count, std::int64_t step, std::int64_t* out,
                   const Strided<2>& walk, cudaStream_t stream) {
  if (walk.numel == 0) return cudaSuccess;
  const Rectangle r = rectangle(walk.numel, count, step != 1);
  return for_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch(argmax_kernel<T>, grid_for((walk.numel + r.outputs - 1) / r.outputs * kThreads), kThreads,
                  0, stream, r, Offsets<2>(walk, 1), count, step, static_cast<const T*>(x), out);
  });
}

cudaError_t sum_of_squares(DType dtype, const void* x, const Strided<1>& walk, double* partial, double* sum,
                           bool adds, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int V = kWidth<T>;
    const T* from = static_cast<const T*>(x);
    // The number of blocks depends on nothing but the number of elements: ranks on unlike GPUs must agree.
    const std::int64_t wanted = (walk.numel + kThreads * 8 - 1) / (kThreads * 8);
    const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, kSquareBlocks));
    const bool wide = packs<V>(walk, 0, from);
    const cudaError_t launched =
        wide ? launch(squares_kernel<T, V>, blocks, kThreads, 0, stream, Offsets<1>(walk, V),
                      static_cast<unsigned>(walk.size[walk.dims - 1] % V), from, partial)
             : launch(squares_kernel<T, 1>, blocks, kThreads, 0, stream, Offsets<1>(walk, 1), 0u, from,
                      partial);
    if (launched != cudaSuccess) return launched;
    return launch(add_kernel, 1u, kThreads, 0, stream, partial, static_cast<int>(blocks), sum, adds);
  });
}

}  // namespace brigade::device
