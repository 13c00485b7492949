// SPDX-License-Identifier: MIT
// kernels/cuda/device/fold.cuh - from one value a thread to one value a block, always in the same order: a tree of
// shuffles inside warps, then one warp over the warps' results. No atomics on floats anywhere: the same input gives the
// same bits, run after run.
#pragma once

#include <cuda_runtime_api.h>

namespace brigade::device {

inline constexpr unsigned kFullWarp = 0xffffffffu, kWarp = 32;

/// f over the values of `Lanes` neighbours of a warp (a power of two, all of it by default), in each of them.
template <unsigned Lanes = kWarp, class T, class F>
__device__ T fold_warp(T value, const F& f) {
#pragma unroll
  for (int lanes = Lanes / 2; lanes > 0; lanes /= 2)
    value = f(value, __shfl_xor_sync(kFullWarp, value, lanes));
  return value;
}

/// f over the values of a block of whole warps in one dim, in all of its threads; `neutral` changes nothing. All
/// threads call it. The block's threads wait for each other at its start, so it may be called again at once.
template <class T, class F>
__device__ T fold_block(T value, T neutral, const F& f) {
  __shared__ T of_warps[kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = fold_warp(value, f);
  if (warps == 1) return value;
  __syncthreads();  // Whoever still reads what an earlier call left there.
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  return fold_warp(lane < warps ? of_warps[lane] : neutral, f);
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

}  // namespace brigade::device
