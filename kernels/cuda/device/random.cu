// SPDX-License-Identifier: MIT
// kernels/cuda/device/random.cu - random tensors and dropout: element i in logical order is number i of its sequence
// (core/rng.h), on every device. A thread makes the four numbers of a Philox block.
#include <cmath>

#include "core/rng.h"
#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace brigade::device {
namespace {

struct Uniform {
  BRIGADE_HD void operator()(const std::array<std::uint32_t, 4>& words, float* numbers) const {
    for (int k = 0; k < 4; ++k) numbers[k] = uniform01(words[static_cast<std::size_t>(k)]);
  }
};
struct Normal {
  BRIGADE_HD void operator()(const std::array<std::uint32_t, 4>& words, float* numbers) const {
    for (std::size_t k = 0; k < 4; k += 2) {
      const auto pair = normal2(words[k], words[k + 1]);
      numbers[k] = pair[0];
      numbers[k + 1] = pair[1];
    }
  }
};

// What becomes of a number: f(number, offset of x) for element i of the walk. Dense: four at once.
template <class D, class T, int N, class F>
__global__ void __launch_bounds__(kThreads)
    random_kernel(std::uint64_t seed, std::uint64_t sequence, std::uint32_t numel, Offsets<N> offsets,
                  bool dense, T* out, F f) {
  const std::uint32_t blocks = (numel + 3) / 4;
  for (std::uint32_t b = blockIdx.x * blockDim.x + threadIdx.x; b < blocks; b += gridDim.x * blockDim.x) {
    float numbers[4];
    D{}(philox(seed, sequence, b), numbers);
    const std::uint32_t first = 4 * b;
    if (dense && first + 4 <= numel) {
      Pack<T, 4> pack;
#pragma unroll
      for (int k = 0; k < 4; ++k) pack.v[k] = f(numbers[k], std::int64_t{first} + k);
      store<4>(out + first, pack);
      continue;
    }
    for (std::uint32_t k = 0; k < 4 && first + k < numel; ++k) {
      std::int64_t at[N];
      offsets.find(first + k, at);
      out[at[0]] = f(numbers[k], at[N - 1]);
    }
  }
}

template <class D, class T, int N, class F>
cudaError_t generate(std::uint64_t seed, std::uint64_t sequence, const Strided<N>& walk, T* out, bool aligned,
                     F f, cudaStream_t stream) {
  if (walk.numel == 0) return cudaSuccess;
  bool dense = aligned && walk.dims == 1;
  for (int n = 0; n < N; ++n) dense = dense && walk.stride[n][0] == 1;
  return launch(random_kernel<D, T, N, F>, grid_for((walk.numel + 3) / 4), kThreads, 0, stream, seed,
                sequence, static_cast<std::uint32_t>(walk.numel), Offsets<N>(walk, 1), dense, out, f);
}

// In double, as on the CPU.
template <class T>
struct Scaled {
  double shift, scale;

  BRIGADE_HD T operator()(float number, std::int64_t) const {
    return convert<T>(shift + scale * static_cast<double>(number));
  }
};

template <class T>
struct Dropout {
  double p;
  compute_t<T> scale;
  const T* x;

  BRIGADE_HD T operator()(float number, std::int64_t at) const {
    const auto value = convert<compute_t<T>>(x[at]);
    return convert<T>(static_cast<double>(number) >= p ? value * scale : compute_t<T>{0});
  }
};

}  // namespace

cudaError_t random(Distribution distribution, DType dtype, std::uint64_t seed, std::uint64_t sequence,
                   double shift, double scale, void* out, const Strided<1>& walk, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = static_cast<T*>(out);
    const Scaled<T> f{shift, scale};
    if (distribution == Distribution::uniform)
      return generate<Uniform>(seed, sequence, walk, to, is_aligned<4>(to), f, stream);
    return generate<Normal>(seed, sequence, walk, to, is_aligned<4>(to), f, stream);
  });
}

cudaError_t dropout(DType dtype, std::uint64_t seed, std::uint64_t sequence, double p, const void* x,
                    void* out, const Strided<2>& walk, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = static_cast<T*>(out);
    const Dropout<T> f{p, static_cast<compute_t<T>>(1 / (1 - p)), static_cast<const T*>(x)};
    return generate<Uniform>(seed, sequence, walk, to, is_aligned<4>(to), f, stream);
  });
}

}  // namespace brigade::device
