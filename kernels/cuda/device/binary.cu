// SPDX-License-Identifier: MIT
// kernels/cuda/device/binary.cu - y = f(a, b), where b may be one value for all. Read before: map.cuh, unary.cu.
#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/map.cuh"
#include "kernels/functor/elementwise.h"

namespace brigade::device {

cudaError_t binary(Binary op, DType dtype, const void* a, const void* b, double scalar, void* out,
                   const Strided<3>& walk, cudaStream_t stream) {
  cudaError_t result = cudaErrorInvalidValue;
  functor::dispatch_binary(op, [&](auto f) {
    result = for_any(dtype, [&](auto tag) {
      using F = decltype(f);
      using T = typename decltype(tag)::type;
      if constexpr (functor::applies<F, T>) {
        using Out = functor::binary_result_t<F, T>;
        constexpr int V = std::is_floating_point_v<compute_t<T>> ? kCommonWidth<T> : 1;
        return map<V>(f, walk, stream, static_cast<Out*>(out), Operand<T>{static_cast<const T*>(a)},
                      Operand<T>{static_cast<const T*>(b), convert<compute_t<T>>(scalar)});
      } else {
        return cudaErrorInvalidValue;
      }
    });
  });
  return result;
}

}  // namespace brigade::device
