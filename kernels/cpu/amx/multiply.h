// SPDX-License-Identifier: MIT
// kernels/cpu/amx/multiply.h - the innermost step of a convolution: 32 rows (images or pixels) times 32 channels,
// over a depth of 32. Read before: pack.h. Read next: conv_images.cpp, conv_pixels.cpp.
#pragma once

#include <algorithm>

#include "kernels/cpu/amx/pack.h"

namespace brigade::cpu::amx {

/// Where the two left tiles lie: the second one `second` values behind the first, rows `row_bytes` apart, and the
/// parts of f32 values `part` values apart.
struct LeftTiles {
  std::int64_t second, row_bytes, part;
};

/// Tiles 0 to 3 (rows 0-15 and 16-31 by channels 0-15 and 16-31) += left times right, a packed block.
/// Parts: a = a0 + a1 + a2 of falling size; the products of parts i and j with i + j > 2 are left out.
template <int parts, bool two>
inline void multiply(const bf16* left, const LeftTiles& l, const bf16* right) {
  for (int i = 0; i < parts; ++i) {
    _tile_loadd(4, left + i * l.part, l.row_bytes);
    if constexpr (two) _tile_loadd(5, left + i * l.part + l.second, l.row_bytes);
    for (int j = 0; j < parts - i; ++j) {
      _tile_loadd(6, right + j * kBlockValues, 64);
      _tile_loadd(7, right + j * kBlockValues + kTileValues, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (two) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
}

inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/// What becomes of the values that a result's memory holds.
enum class Into { overwrite, add };

/// Up to 32 channels of the result's rows: what tiles 0 to 3 hold, plus a bias, plus what is there already if asked
/// for, rounded to the result's type once.
class ResultBlock {
 public:
  /// Channels [first, first + 32) of `channels`; bias [channels] or null.
  ResultBlock(std::int64_t first, std::int64_t channels, const float* bias, Into into = Into::overwrite)
      : mask_(static_cast<__mmask32>((std::uint64_t{1} << std::min(kBlock, channels - first)) - 1)),
        into_(into) {
    if (bias == nullptr) return;
    low_bias_ = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask_), bias + first);
    high_bias_ = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask_ >> 16), bias + first + 16);
  }

  /// The first `rows` rows; row r goes to `to(r)`.
  template <class To>
  void write(std::int64_t rows, const To& to) const {
    alignas(64) float sums[4][kTileRows * kTileRows];
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    if (rows > kTileRows) {
      _tile_stored(2, sums[2], 64);
      _tile_stored(3, sums[3], 64);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* low = sums[r / kTileRows * 2] + r % kTileRows * kTileRows;
      auto* at = to(r);
      __m512 low_sum = _mm512_add_ps(_mm512_load_ps(low), low_bias_);
      __m512 high_sum = _mm512_add_ps(_mm512_load_ps(low + kTileRows * kTileRows), high_bias_);
      if (into_ == Into::add) add(at, low_sum, high_sum);
      store(low_sum, high_sum, at);
    }
  }

 private:
  void add(const bf16* from, __m512& low, __m512& high) const {
    const __m512i values = _mm512_maskz_loadu_epi16(mask_, from);
    // A bf16 is the upper half of a float.
    const auto widened = [](__m256i half) {
      return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
    };
    low = _mm512_add_ps(low, widened(_mm512_castsi512_si256(values)));
    high = _mm512_add_ps(high, widened(_mm512_extracti64x4_epi64(values, 1)));
  }
  void add(const float* from, __m512& low, __m512& high) const {
    low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask_), from));
    high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask_ >> 16), from + 16));
  }
  void store(__m512 low, __m512 high, bf16* to) const {
    _mm512_mask_storeu_epi16(to, mask_, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
  void store(__m512 low, __m512 high, float* to) const {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask_), low);
    _mm512_mask_storeu_ps(to + 16, static_cast<__mmask16>(mask_ >> 16), high);
  }

  __mmask32 mask_;
  Into into_;
  __m512 low_bias_ = _mm512_setzero_ps(), high_bias_ = _mm512_setzero_ps();
};

}  // namespace brigade::cpu::amx
