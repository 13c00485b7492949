// SPDX-License-Identifier: MIT
// kernels/cuda/device/unary.cu - y = f(x). Integers, which no training step has in large numbers, get the narrow kernel
// alone. Read before: map.cuh, kernels/functor/elementwise.h.
#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/map.cuh"
#include "kernels/functor/elementwise.h"

namespace brigade::device {

cudaError_t unary(Unary op, DType dtype, const void* x, void* out, const Strided<2>& walk,
                  cudaStream_t stream) {
  cudaError_t result = cudaErrorInvalidValue;
  functor::dispatch_unary(op, [&](auto f) {
    result = for_any(dtype, [&](auto tag) {
      using F = decltype(f);
      using T = typename decltype(tag)::type;
      if constexpr (functor::applies<F, T>) {
        using Out = functor::unary_result_t<F, T>;
        constexpr int V = std::is_floating_point_v<compute_t<T>> ? kCommonWidth<T> : 1;
        return map<V>(f, walk, stream, static_cast<Out*>(out), Operand<T>{static_cast<const T*>(x)});
      } else {
        return cudaErrorInvalidValue;
      }
    });
  });
  return result;
}

}  // namespace brigade::device
