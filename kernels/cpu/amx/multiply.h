// SPDX-License-Identifier: MIT
// kernels/cpu/amx/multiply.h - the innermost step of a convolution: 32 rows (images or pixels) times 32 channels,
// over a depth of 32. Read before: pack.h. Read next: conv_images.cpp, conv_pixels.cpp.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/cpu/amx/pack.h"

namespace brigade::cpu::amx {

/// Where the two left tiles lie: the second one `second` values behind the first, rows `row_bytes` apart, and the
/// parts of f32 values `part` values apart.
struct LeftTiles {
  std::int64_t second, row_bytes, part;
};

/// Which of the two left tiles take part.
enum class Rows { first, second, both };

namespace detail {

template <Rows rows>
inline void load_left(const bf16* left, const LeftTiles& l) {
  if constexpr (rows != Rows::second) _tile_loadd(4, left, l.row_bytes);
  if constexpr (rows != Rows::first) _tile_loadd(5, left + l.second, l.row_bytes);
}
inline void load_right(const bf16* right) {
  _tile_loadd(6, right, 64);
  _tile_loadd(7, right + kTileValues, 64);
}
template <Rows rows>
inline void add_products() {
  if constexpr (rows != Rows::second) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (rows != Rows::first) {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

/// Parts a = a0 + a1 + a2 of falling size; products of parts i and j with i + j > 2 are left out. From one of these
/// pairs to the next only one operand changes, and the right one seldom: it comes from further away.
struct PartPair {
  int left, right;
};
inline constexpr PartPair kPartPairs[] = {{2, 0}, {1, 0}, {0, 0}, {0, 2}, {0, 1}, {1, 1}};

template <Rows rows, std::size_t i>
inline void multiply_parts(const bf16* left, const LeftTiles& l, const bf16* right) {
  constexpr PartPair now = kPartPairs[i], before = kPartPairs[i == 0 ? 0 : i - 1];
  if constexpr (i == 0 || now.left != before.left) load_left<rows>(left + now.left * l.part, l);
  if constexpr (i == 0 || now.right != before.right) load_right(right + now.right * kBlockValues);
  add_products<rows>();
}

}  // namespace detail

/// Tiles 0 to 3 (rows 0-15 and 16-31 by channels 0-15 and 16-31) += left times right, a packed block.
///
/// Tile products take all of the time here if the tiles come from the first-level or, in f32, the second-level cache;
/// a tile from further away takes eight times as long as a product.
template <int parts, Rows rows>
inline void multiply(const bf16* left, const LeftTiles& l, const bf16* right) {
  if constexpr (parts == 1) {
    detail::load_left<rows>(left, l);
    detail::load_right(right);
    detail::add_products<rows>();
  } else {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (detail::multiply_parts<rows, i>(left, l, right), ...);
    }
    (std::make_index_sequence<std::size(detail::kPartPairs)>{});
  }
}

/// Told of each multiply(), stores a tile that nobody needs every 64 products or so. Where some 130 have come since
/// the last tile store the next one holds up what follows by 280 ns (measured on Sapphire Rapids), one in time by 5.
template <int parts>
class TimelyStores {
 public:
  void after_multiply() {
    if (++count_ < kApart) return;
    count_ = 0;
    _tile_stored(4, memory_, 64);
  }

 private:
  static constexpr int kApart = parts == 1 ? 16 : 3;
  int count_ = 0;
  alignas(64) float memory_[kTileRows * kTileRows];
};

/// Tiles 0 to 3 in memory.
inline constexpr std::int64_t kTileSums = kTileRows * kTileRows, kSums = 4 * kTileSums;

inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

inline void store_sums(float* sums) {
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + kTileSums, 64);
  _tile_stored(2, sums + 2 * kTileSums, 64);
  _tile_stored(3, sums + 3 * kTileSums, 64);
}

}  // namespace brigade::cpu::amx
