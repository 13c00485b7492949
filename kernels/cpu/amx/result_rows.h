// SPDX-License-Identifier: MIT
// kernels/cpu/amx/result_rows.h - from sums in tiles to rows of the result in memory: plus a bias, plus what is there
// already if asked for, rounded to the result's type once. That is work for the vector units, which idle while tiles
// are multiplied; so it waits in a buffer and is done row by row between the products of the next block.
// Read before: multiply.h. Read next: conv_pixels.cpp.
#pragma once

#include <algorithm>

#include "kernels/cpu/amx/multiply.h"

namespace brigade::cpu::amx {

/// What becomes of the values that a result's memory holds.
enum class Into { overwrite, add };

/// Where the sums of a result's channels and of their squares go: [channels] each, or null.
struct MomentSums {
  float *sum = nullptr, *squares = nullptr;
};

/// Rows of tiles 0 and 1 (half 0), then of tiles 2 and 3 (half 1): row r of half h goes to `to + h * half + r * row`.
template <class T>
struct ResultPlace {
  T* to;
  std::int64_t half, row;  ///< Strides.
  std::int64_t rows[2];    ///< Of either half.
  std::int64_t channel;    ///< The first of up to 32.
  MomentSums moments = {};
};

/// One thread's results on their way. finish() before the end.
template <class T>
class ResultRows {
 public:
  /// Of `channels` channels; bias [channels] or null.
  ResultRows(std::int64_t channels, const float* bias, Into into)
      : channels_(channels), bias_(bias), into_(into) {}

  /// Takes what tiles 0 to 3 hold.
  void take(const ResultPlace<T>& place) {
    finish();
    place_ = place;
    mask_ = static_cast<__mmask32>((std::uint64_t{1} << std::min(kBlock, channels_ - place.channel)) - 1);
    next_ = 0;
    end_ = place.rows[0] + place.rows[1];
    _tile_stored(0, sums_[0], 64);
    _tile_stored(1, sums_[1], 64);
    if (place.rows[1] == 0) return;
    _tile_stored(2, sums_[2], 64);
    _tile_stored(3, sums_[3], 64);
  }

  /// Writes a few rows, if there are any: between two products.
  void write_some() {
    for (const std::int64_t last = std::min<std::int64_t>(next_ + 2, end_); next_ < last; ++next_)
      write(next_);
  }
  void finish() {
    for (; next_ < end_; ++next_) write(next_);
  }

 private:
  // 16 channels and the 16 behind them.
  struct Pair {
    __m512 low, high;
  };

  void write(std::int64_t i) const {
    const std::int64_t half = i >= place_.rows[0] ? 1 : 0, r = i - half * place_.rows[0];
    T* to = place_.to + half * place_.half + r * place_.row;
    Pair v{_mm512_load_ps(sums_[2 * half] + r * kTileRows),
           _mm512_load_ps(sums_[2 * half + 1] + r * kTileRows)};
    if (bias_ != nullptr) v = sum(v, load(bias_ + place_.channel));
    if (into_ == Into::add) v = sum(v, load(to));
    if (place_.moments.sum != nullptr) {
      float *const sums = place_.moments.sum + place_.channel, *const squares =
                                                                   place_.moments.squares + place_.channel;
      const Pair q = load(squares);
      store(sum(load(sums), v), sums);
      store({_mm512_fmadd_ps(v.low, v.low, q.low), _mm512_fmadd_ps(v.high, v.high, q.high)}, squares);
    }
    store(v, to);
  }

  static Pair sum(const Pair& a, const Pair& b) {
    return {_mm512_add_ps(a.low, b.low), _mm512_add_ps(a.high, b.high)};
  }
  Pair load(const bf16* from) const {
    const __m512i values = _mm512_maskz_loadu_epi16(mask_, from);
    // A bf16 is the upper half of a float.
    const auto widened = [](__m256i half) {
      return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
    };
    return {widened(_mm512_castsi512_si256(values)), widened(_mm512_extracti64x4_epi64(values, 1))};
  }
  Pair load(const float* from) const {
    return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask_), from),
            _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask_ >> 16), from + 16)};
  }
  void store(const Pair& v, bf16* to) const {
    _mm512_mask_storeu_epi16(to, mask_, (__m512i)_mm512_cvtne2ps_pbh(v.high, v.low));
  }
  void store(const Pair& v, float* to) const {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask_), v.low);
    _mm512_mask_storeu_ps(to + 16, static_cast<__mmask16>(mask_ >> 16), v.high);
  }

  std::int64_t channels_;
  const float* bias_;
  Into into_;
  ResultPlace<T> place_ = {};
  __mmask32 mask_ = 0;
  std::int64_t next_ = 0, end_ = 0;
  alignas(64) float sums_[4][kTileSums];
};

}  // namespace brigade::cpu::amx
