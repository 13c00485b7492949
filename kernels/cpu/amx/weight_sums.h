// SPDX-License-Identifier: MIT
// kernels/cpu/amx/weight_sums.h - the sums of a block of weight gradients, 32 outputs by 32 inputs at one kernel
// position: four tiles of f32 (outputs 0-15 and 16-31 by inputs 0-15 and 16-31), between memory and tile registers.
#pragma once

#include <algorithm>

#include "kernels/cpu/amx/geometry.h"
#include "kernels/cpu/amx/multiply.h"
#include "kernels/cpu/amx/strided.h"

namespace brigade::cpu::amx {

/// One thread's sums on their way from tiles to memory. Tile stores to lines that the first-level cache lacks hold up
/// the tile loads behind them, so they go to a buffer and from there on between the next products.
class SumRows {
 public:
  /// Tiles 0 to 3 go to `to`, or are added to what is there.
  void take(float* to, bool add) {
    finish();
    store_sums(sums_);
    to_ = to;
    add_ = add;
    next_ = 0;
  }
  void some() {
    for (const std::int64_t last = std::min<std::int64_t>(next_ + 4, kRows); next_ < last; ++next_)
      move(next_);
  }
  void finish() {
    for (; next_ < kRows; ++next_) move(next_);
  }

 private:
  static constexpr std::int64_t kRows = kSums / kTileRows;

  void move(std::int64_t row) const {
    float* to = to_ + row * kTileRows;
    const __m512 sums = _mm512_load_ps(sums_ + row * kTileRows);
    _mm512_store_ps(to, add_ ? _mm512_add_ps(_mm512_load_ps(to), sums) : sums);
  }

  float* to_ = nullptr;
  bool add_ = false;
  std::int64_t next_ = kRows;
  alignas(64) float sums_[kSums];
};

/// The way from there to the gradient, half a row at a time: between the products of the next block of weights.
class WeightRows {
 public:
  /// dw [O, I, positions].
  WeightRows(const Geometry& g, float* dw) : g_(g), dw_(dw) {}

  /// sums [positions, kSums] of one block of outputs and inputs; read until finish().
  void take(const float* sums, std::int64_t out_block, std::int64_t in_block) {
    finish();
    sums_ = sums;
    out_ = out_block * kBlock;
    in_ = in_block * kBlock;
    next_ = 0;
    end_ = 2 * std::min(kBlock, g_.out_channels - out_);
  }
  void some() {
    if (next_ < end_) write(next_++);
  }
  void finish() {
    for (; next_ < end_; ++next_) write(next_);
  }

 private:
  void write(std::int64_t i) const {
    const std::int64_t row = i / 2, half = i % 2, in = in_ + half * kTileRows;
    const std::int64_t width = std::min(kTileRows, g_.in_channels - in);
    const float* from = sums_ + (row / 16 * 2 + half) * kTileSums + row % 16 * kTileRows;
    float* to = dw_ + ((out_ + row) * g_.in_channels + in) * g_.positions;
    if (g_.positions == kNine && width == kTileRows) {
      __m512 values[kNine];
      for (std::int64_t k = 0; k < kNine; ++k) values[k] = _mm512_load_ps(from + k * kSums);
      return join_nine(values, to);
    }
    for (std::int64_t v = 0; v < width; ++v)
      for (std::int64_t k = 0; k < g_.positions; ++k) to[v * g_.positions + k] = from[k * kSums + v];
  }

  const Geometry& g_;
  float* dw_;
  const float* sums_ = nullptr;
  std::int64_t out_ = 0, in_ = 0, next_ = 0, end_ = 0;
};

}  // namespace brigade::cpu::amx
