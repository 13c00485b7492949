// SPDX-License-Identifier: MIT
// kernels/cpu/amx/pack.h - from memory to tiles. Everything is packed from blocks of 32 x 32 values: 32 rows that lie
// anywhere (images at one pixel, or filters), 32 values each (channels), of bf16 or of f32 split into parts. A block
// makes two tiles a part, 2 KiB; rows and values beyond the edge are zeros.
// Included by kernels/cpu/amx/*.cpp only. Read before: tiles.h. Read next: conv_pixels.cpp.
#pragma once

#include <vector>

#include "core/dtype.h"
#include "kernels/cpu/amx/tiles.h"

namespace brigade::cpu::amx {

inline constexpr std::int64_t kBlock = 32;                     ///< Rows, and values a row.
inline constexpr std::int64_t kBlockValues = kBlock * kBlock;  ///< Of a part: two tiles.

/// How many bf16 values stand for one value of an activation of type T, and of the weights beside it.
template <class T>
inline constexpr int kParts = 1;
template <>
inline constexpr int kParts<float> = 3;

/// How the two tiles lie. "First" is the left operand A[16][32], "second" the right one B[16 pairs][16][2].
enum class Form {
  first_by_row,     ///< A, a row a row: tiles are rows 0-15 and 16-31; depth runs along the values.
  first_by_value,   ///< A, a row a value: tiles are values 0-15 and 16-31; depth runs along the rows.
  second_by_row,    ///< B, a column a row: tiles are rows 0-15 and 16-31; depth runs along the values.
  second_by_value,  ///< B, a column a value: tiles are values 0-15 and 16-31; depth runs along the rows.
};

/// 32 x 32 values of a larger array: value v of row r is data[r * row_stride + v].
template <class T>
struct Block {
  const T* data;
  std::int64_t row_stride;
  std::int64_t rows, values;  ///< Before the edge, up to 32.
};

/// Writes `parts` parts, largest first, of kBlockValues each.
template <Form form, int parts, class T>
void pack(const Block<T>& block, bf16* tiles);

/// The same for weights, where `used.size()` positions lie side by side for each value of a row: value v of row r at
/// position k is data[r * row_stride + v * used.size() + k]. Position k goes to tiles + k * position_stride, if it is
/// used.
template <Form form, int parts>
void pack_positions(const Block<float>& block, const std::vector<bool>& used, bf16* tiles,
                    std::int64_t position_stride);

/// The three parts of `count` values, each part_stride values behind the one before.
void split_values(const float* values, std::int64_t count, bf16* to, std::int64_t part_stride);

}  // namespace brigade::cpu::amx
