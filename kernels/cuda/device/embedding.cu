// SPDX-License-Identifier: MIT
// kernels/cuda/device/embedding.cu - rows of a table by id. In the gradient the first occurrence of an id adds up the
// rows of all later ones, in their order: neither atomics nor a sort, and the CPU's bits. It reads all ids for each of
// them, which costs less than the rows up to some ten thousand ids.
#include <type_traits>

#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace brigade::device {
namespace {

// A NaN of every floating type.
template <class T>
__device__ T all_ones() {
  if constexpr (std::is_same_v<T, uint4>)
    return T{~0u, ~0u, ~0u, ~0u};
  else
    return static_cast<T>(~T{0});
}

// A row is `items` of T, some unsigned type as wide as alignment allows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const T* w, std::int64_t rows, const std::int64_t* ids, std::uint32_t count, Divider items,
                  T* out) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const std::uint32_t n = items.divide(i);
    const std::int64_t id = ids[n];
    out[i] = id >= 0 && id < rows ? w[id * items.divisor + (i - n * items.divisor)] : all_ones<T>();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(const T* dy, const std::int64_t* ids, std::int64_t count, std::int64_t rows,
                    std::int64_t width, T* dw) {
  using C = compute_t<T>;
  for (std::int64_t n = blockIdx.x; n < count; n += gridDim.x) {
    const std::int64_t id = ids[n];
    if (id < 0 || id >= rows) continue;  // The same in all threads, as below.
    int earlier = 0;
    for (std::int64_t m = threadIdx.x; m < n; m += blockDim.x) earlier |= ids[m] == id ? 1 : 0;
    if (__syncthreads_or(earlier) != 0) continue;
    for (std::int64_t column = threadIdx.x; column < width; column += blockDim.x) {
      T total = dw[id * width + column];
      for (std::int64_t m = n; m < count; ++m)
        if (ids[m] == id) total = convert<T>(convert<C>(total) + convert<C>(dy[m * width + column]));
      dw[id * width + column] = total;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    find_kernel(const std::int64_t* ids, Offsets<1> offsets, std::int64_t limit, std::int64_t allowed,
                unsigned long long* found) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < offsets.numel;
       i += gridDim.x * blockDim.x) {
    std::int64_t at;
    offsets.find(i, &at);
    const std::int64_t id = ids[at];
    if ((id < 0 || id >= limit) && id != allowed) atomicMin(found, static_cast<unsigned long long>(i));
  }
}

__global__ void value_kernel(const std::int64_t* ids, Offsets<1> offsets, std::int64_t* found) {
  if (found[0] < 0) return;
  std::int64_t at;
  offsets.find(static_cast<std::uint32_t>(found[0]), &at);
  found[1] = ids[at];
}

template <class T>
cudaError_t gather(int row_bytes, const void* w, std::int64_t rows, const std::int64_t* ids,
                   std::int64_t count, void* out, cudaStream_t stream) {
  const std::int64_t items = row_bytes / static_cast<std::int64_t>(sizeof(T));
  return launch(gather_kernel<T>, grid_for(count * items), kThreads, 0, stream, static_cast<const T*>(w),
                rows, ids, static_cast<std::uint32_t>(count * items), Divider(items), static_cast<T*>(out));
}

}  // namespace

cudaError_t embedding(int row_bytes, const void* w, std::int64_t rows, const std::int64_t* ids,
                      std::int64_t count, void* out, cudaStream_t stream) {
  const auto fits = [&](std::uintptr_t bytes) {
    return static_cast<std::uintptr_t>(row_bytes) % bytes == 0 &&
           reinterpret_cast<std::uintptr_t>(w) % bytes == 0 &&
           reinterpret_cast<std::uintptr_t>(out) % bytes == 0;
  };
  if (row_bytes == 0 || count == 0) return cudaSuccess;
  if (fits(16)) return gather<uint4>(row_bytes, w, rows, ids, count, out, stream);
  if (fits(4)) return gather<std::uint32_t>(row_bytes, w, rows, ids, count, out, stream);
  return gather<std::uint16_t>(row_bytes, w, rows, ids, count, out, stream);
}

cudaError_t embedding_grad(DType dtype, const void* dy, const std::int64_t* ids, std::int64_t count,
                           std::int64_t rows, std::int64_t width, void* dw, cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(count, std::int64_t{multiprocessors()} * 64));
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch(add_rows_kernel<T>, blocks, kThreads, 0, stream, static_cast<const T*>(dy), ids, count,
                  rows, width, static_cast<T*>(dw));
  });
}

cudaError_t find_out_of_range(const std::int64_t* ids, const Strided<1>& walk, std::int64_t limit,
                              std::int64_t allowed, std::int64_t* found, cudaStream_t stream) {
  cudaError_t cleared = cudaMemsetAsync(found, 0xff, sizeof *found, stream);
  if (cleared == cudaSuccess) cleared = cudaMemsetAsync(found + 1, 0, sizeof *found, stream);
  if (cleared != cudaSuccess || walk.numel == 0) return cleared;
  const Offsets<1> offsets(walk, 1);
  const cudaError_t launched = launch(find_kernel, grid_for(walk.numel), kThreads, 0, stream, ids, offsets,
                                      limit, allowed, reinterpret_cast<unsigned long long*>(found));
  if (launched != cudaSuccess) return launched;
  return launch(value_kernel, 1u, 1u, 0, stream, ids, offsets, found);
}

}  // namespace brigade::device
