// SPDX-License-Identifier: MIT
// kernels/cuda/device/launch.cuh - the one place where a kernel is launched, and the one that differs when these files
// are compiled as C++ for the emulated GPU (tests/fake_gpu/simt.h, which is included in front of everything then).
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace brigade::device {

/// Threads of a block, where nothing speaks for another number: a multiple of every warp and register granule.
inline constexpr unsigned kThreads = 256;

#if defined(__CUDACC__)

/// kernel(args...) on `grid` blocks of `block` threads, with `shared_bytes` of dynamic shared memory, behind what
/// `stream` was given before. Returns at once; an empty grid is no launch.
template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, Args... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Params>(args)...);
  return cudaGetLastError();
}

/// Of the device that the calling thread uses.
inline unsigned multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || count < 1)
    return 1;  // Whatever is wrong, the launch that follows says it.
  return static_cast<unsigned>(count);
}

/// The block's dynamic shared memory.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ uint4 brigade_dynamic_shared[];  // Of uint4: aligned for every access.
  return reinterpret_cast<T*>(brigade_dynamic_shared);
}

#else

template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, Args... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  simt::launch(kernel, grid, block, shared_bytes, stream, args...);
  return cudaSuccess;
}

inline unsigned multiprocessors() { return 2; }  // Few, so that loops over the grid go round.

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(simt::dynamic_shared());
}

#endif

/// Blocks of kThreads for `items`, one a thread; at most eight for each multiprocessor times four, so that the loop
/// over the grid of a large one goes round and few threads are started for nothing.
inline unsigned grid_for(std::int64_t items) {
  const std::int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(std::min<std::int64_t>(blocks, std::int64_t{multiprocessors()} * 32));
}

}  // namespace brigade::device
