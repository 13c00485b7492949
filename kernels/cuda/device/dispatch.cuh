// SPDX-License-Identifier: MIT
// kernels/cuda/device/dispatch.cuh - from a DType to a C++ type, for code that may not throw: this library is a world
// of its own, which only knows error codes.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dtype.h"

namespace brigade::device {

/// f(TypeTag<T>{}), which returns an error code.
template <class F>
cudaError_t for_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::f64:
      return f(TypeTag<double>{});
    case DType::bf16:
      return f(TypeTag<bf16>{});
    case DType::f16:
      return f(TypeTag<f16>{});
    default:
      return cudaErrorInvalidValue;
  }
}

template <class F>
cudaError_t for_integer(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i32:
      return f(TypeTag<std::int32_t>{});
    case DType::i64:
      return f(TypeTag<std::int64_t>{});
    case DType::u8:
      return f(TypeTag<std::uint8_t>{});
    case DType::i8:
      return f(TypeTag<std::int8_t>{});
    case DType::boolean:
      return f(TypeTag<bool>{});
    default:
      return cudaErrorInvalidValue;
  }
}

template <class F>
cudaError_t for_any(DType dtype, F&& f) {
  return is_floating(dtype) ? for_floating(dtype, f) : for_integer(dtype, f);
}

}  // namespace brigade::device
