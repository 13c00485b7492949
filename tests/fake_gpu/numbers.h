// SPDX-License-Identifier: MIT
// tests/fake_gpu/numbers.h - the numbers in the emulated GPU's memory, as the emulated libraries read and write them.
// Header only: the emulated libraries link nothing of the product.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fake_gpu {

using brigade::DType;

/// Element `i` at `at`; floating dtypes only.
inline double load(const void* at, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(at)[i];
    case DType::bf16:
      return static_cast<double>(static_cast<float>(static_cast<const brigade::bf16*>(at)[i]));
    case DType::f16:
      return static_cast<double>(static_cast<float>(static_cast<const brigade::f16*>(at)[i]));
    default:
      return static_cast<double>(static_cast<const float*>(at)[i]);
  }
}

inline void store(void* at, DType dtype, std::int64_t i, double value) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(at)[i] = value;
      break;
    case DType::bf16:
      static_cast<brigade::bf16*>(at)[i] = brigade::bf16(static_cast<float>(value));
      break;
    case DType::f16:
      static_cast<brigade::f16*>(at)[i] = brigade::f16(static_cast<float>(value));
      break;
    default:
      static_cast<float*>(at)[i] = static_cast<float>(value);
  }
}

/// alpha and beta: f64 beside f64, f32 beside all others.
inline double factor(const void* at, bool f64) {
  return f64 ? *static_cast<const double*>(at) : static_cast<double>(*static_cast<const float*>(at));
}

inline bool is_aligned(const void* at, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(bytes) == 0;
}

}  // namespace fake_gpu
