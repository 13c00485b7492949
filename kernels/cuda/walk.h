// SPDX-License-Identifier: MIT
// kernels/cuda/walk.h - from Tensors to what the device kernels take: plain walks, in parts that 32 bits can number,
// and a stream. Read before: kernels/walk.h, kernels/cuda/device/device_kernels.h. Read next:
// kernels/cuda/elementwise.cpp.
#pragma once

#include <string_view>

#include "core/cuda/check_cuda.h"
#include "core/cuda/stream_cuda.h"
#include "kernels/cuda/device/device_kernels.h"
#include "kernels/walk.h"

namespace brigade::cuda {

/// Where work on `t` goes now: the current stream of the calling thread on t's device, which this makes current.
inline cudaStream_t stream_of(const Tensor& t) { return current_cuda_stream(t.device()); }

/// Throws Error unless a launch of `op` went well.
inline void launched(cudaError_t code, std::string_view op) {
  check_cuda(code, "cudaLaunchKernel", "for ", op);
}

/// Elements that one launch numbers with 32 bits.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 30;

template <int N>
device::Strided<N> strided(const Walk<N>& walk) {
  static_assert(device::kMaxWalkDims == kMaxDims);
  device::Strided<N> result;
  result.numel = walk.numel;
  result.dims = walk.dims;
  for (int d = 0; d < walk.dims; ++d) {
    result.size[d] = walk.dim[d].size;
    for (int n = 0; n < N; ++n) result.stride[n][d] = walk.dim[d].stride[n];
  }
  return result;
}

/// The first of two parts of `size` elements, cut so that both stay aligned.
inline std::int64_t first_part(std::int64_t size) {
  return size < 128 ? size / 2 : (size / 2 + 63) / 64 * 64;
}

/// Calls f(walk, at) for parts of at most kMostElements; tensor n of a part begins at[n] elements from its start.
template <int N, class F>
void for_each_part(const Walk<N>& walk, const F& f, const std::int64_t (&at)[N] = {}) {
  if (walk.numel <= kMostElements) return f(strided(walk), at);
  Walk<N> first = walk, second = walk;
  auto &head = first.dim[0], &rest = second.dim[0];
  head.size = first_part(head.size);
  rest.size -= head.size;
  first.numel = walk.numel / walk.dim[0].size * head.size;
  second.numel = walk.numel - first.numel;
  std::int64_t behind[N];
  for (int n = 0; n < N; ++n) behind[n] = at[n] + head.size * head.stride[n];
  for_each_part(first, f, at);
  for_each_part(second, f, behind);
}

inline std::byte* at(const Tensor& t, std::int64_t elements) { return t.raw() + elements * t.item_bytes(); }

/// Sizes and strides of a 4-D tensor.
inline device::Image image(const Tensor& t) {
  device::Image result;
  for (int d = 0; d < 4; ++d) {
    result.size[d] = t.shape()[d];
    result.stride[d] = t.stride(d);
  }
  return result;
}

/// A dense tensor [.., D] as rows of D.
inline device::Rows rows_of(const Tensor& t) {
  const std::int64_t width = t.shape().back();
  return {.count = width > 0 ? t.numel() / width : 0, .width = width};
}

}  // namespace brigade::cuda
