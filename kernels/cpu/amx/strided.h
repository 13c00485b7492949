// SPDX-License-Identifier: MIT
// kernels/cpu/amx/strided.h - weights [O, I, 3, 3] keep the nine values of a kernel side by side; tiles want one
// kernel position of many channels side by side.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace brigade::cpu::amx {

/// Positions of a 3x3 kernel: nine values of 16 channels are nine vectors, so they change places in registers.
inline constexpr std::int64_t kNine = 9;

namespace detail {

struct ThreeTable {
  alignas(64) std::int32_t split[3][16] = {};  // Every third of 48 values lies at ...
  __mmask16 split_last[3] = {};                // ... and whether in the last 16.
  alignas(64) std::int32_t join[3][16] =
      {};                       // Of 48 values, a third from either side: its lane, the second one's + 16.
  __mmask16 join_last[3] = {};  // Whether of the last third.
};
constexpr ThreeTable make_three_table() {
  ThreeTable table;
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 16; ++i) {
      const int from = 3 * i + r, to = 16 * r + i;
      table.split[r][i] = from;
      if (from >= 32) table.split_last[r] = static_cast<__mmask16>(table.split_last[r] | 1 << i);
      table.join[r][i] = to / 3 + (to % 3 == 1 ? 16 : 0);
      if (to % 3 == 2) table.join_last[r] = static_cast<__mmask16>(table.join_last[r] | 1 << i);
    }
  return table;
}
inline constexpr ThreeTable kThreeTable = make_three_table();

// Permutations look at the lowest bits of an index only.
inline __m512 pick(__m512 first, __m512 second, __m512 last, const std::int32_t* index, __mmask16 of_last) {
  const __m512i lanes = _mm512_load_si512(index);
  return _mm512_mask_permutexvar_ps(_mm512_permutex2var_ps(first, lanes, second), of_last, lanes, last);
}

}  // namespace detail

/// 48 values in three vectors -> one vector of every third.
inline void split_three(const __m512* values, __m512* thirds) {
  for (int r = 0; r < 3; ++r)
    thirds[r] = detail::pick(values[0], values[1], values[2], detail::kThreeTable.split[r],
                             detail::kThreeTable.split_last[r]);
}

/// The way back.
inline void join_three(const __m512* thirds, __m512* values) {
  for (int r = 0; r < 3; ++r)
    values[r] = detail::pick(thirds[0], thirds[1], thirds[2], detail::kThreeTable.join[r],
                             detail::kThreeTable.join_last[r]);
}

/// memory [16 channels][9] -> by_position[t] lane c. Position 3 q + r of channel c is every third value twice: of the
/// values with remainder r those with remainder q.
inline void split_nine(const float* memory, __m512 (&by_position)[9]) {
  __m512 values[3], thirds[3][3];  // [48 values][remainder]
  for (int g = 0; g < 3; ++g) {
    for (int j = 0; j < 3; ++j) values[j] = _mm512_loadu_ps(memory + 48 * g + 16 * j);
    split_three(values, thirds[g]);
  }
  for (int r = 0; r < 3; ++r) {
    for (int g = 0; g < 3; ++g) values[g] = thirds[g][r];
    __m512 ninths[3];
    split_three(values, ninths);
    for (int q = 0; q < 3; ++q) by_position[3 * q + r] = ninths[q];
  }
}

/// The way back.
inline void join_nine(const __m512 (&by_position)[9], float* memory) {
  __m512 values[3], thirds[3][3];
  for (int r = 0; r < 3; ++r) {
    const __m512 ninths[3] = {by_position[r], by_position[3 + r], by_position[6 + r]};
    join_three(ninths, values);
    for (int g = 0; g < 3; ++g) thirds[g][r] = values[g];
  }
  for (int g = 0; g < 3; ++g) {
    join_three(thirds[g], values);
    for (int j = 0; j < 3; ++j) _mm512_storeu_ps(memory + 48 * g + 16 * j, values[j]);
  }
}

}  // namespace brigade::cpu::amx
