// SPDX-License-Identifier: MIT
// kernels/cpu/narrow.h - rounding a run of f32 values to bf16. The plain loop is several instructions a
// vector, as many as the arithmetic of batch norm; compiled for a processor with an instruction for it, it is one.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/dtype.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace brigade::cpu {

/// The largest f32 that narrow() makes zero. The instruction takes denormal numbers for zeros.
#ifdef __AVX512BF16__
inline constexpr float kNarrowsToZero = 0x1.fffffcp-127f;
#else
inline constexpr float kNarrowsToZero = 0x1p-134f;
#endif

/// `value` rounded to nearest even, to the bits that the run below gives it.
inline bf16 narrow(float value) {
  return {std::fabs(value) <= kNarrowsToZero ? std::copysign(0.0f, value) : value};
}

/// to[i] = from[i], rounded to nearest even, for i < count.
inline void narrow(const float* from, std::int64_t count, bf16* to) {
  std::int64_t i = 0;
#ifdef __AVX512BF16__
  for (; i + 32 <= count; i += 32)
    _mm512_storeu_si512(
        to + i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i)));
#endif
  for (; i < count; ++i) to[i] = narrow(from[i]);
}

}  // namespace brigade::cpu
