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
// Value v of channel-major memory is position v % 9 of channel v / 9; it lies in lane v % 16 of vector v / 16.
struct NineTable {
  alignas(64) std::int32_t channel[9][16] = {};  // Of lane i of memory vector j.
  __mmask16 lanes[9][9] = {};                    // Lanes of memory vector j that hold position t.
  alignas(64)
      std::int32_t lane[9][9][16] = {};  // For channel c at position t: its lane, where vector j holds it.
  __mmask16 channels[9][9] = {};         // Channels whose position t lies in memory vector j.
};
constexpr NineTable make_nine_table() {
  NineTable table;
  for (int v = 0; v < 144; ++v) {
    const int j = v / 16, i = v % 16, c = v / 9, t = v % 9;
    table.channel[j][i] = c;
    table.lanes[j][t] = static_cast<__mmask16>(table.lanes[j][t] | 1 << i);
    table.lane[j][t][c] = i;
    table.channels[j][t] = static_cast<__mmask16>(table.channels[j][t] | 1 << c);
  }
  return table;
}
inline constexpr NineTable kNineTable = make_nine_table();
}  // namespace detail

/// memory [16 channels][9] -> by_position[t] lane c.
inline void split_nine(const float* memory, __m512 (&by_position)[9]) {
  for (__m512& v : by_position) v = _mm512_setzero_ps();
  for (int j = 0; j < 9; ++j) {
    const __m512 values = _mm512_loadu_ps(memory + 16 * j);
    for (int t = 0; t < 9; ++t)
      by_position[t] = _mm512_mask_permutexvar_ps(by_position[t], detail::kNineTable.channels[j][t],
                                                  _mm512_load_si512(detail::kNineTable.lane[j][t]), values);
  }
}

/// The way back.
inline void join_nine(const __m512 (&by_position)[9], float* memory) {
  for (int j = 0; j < 9; ++j) {
    const __m512i channel = _mm512_load_si512(detail::kNineTable.channel[j]);
    __m512 values = _mm512_setzero_ps();
    for (int t = 0; t < 9; ++t)
      values = _mm512_mask_permutexvar_ps(values, detail::kNineTable.lanes[j][t], channel, by_position[t]);
    _mm512_storeu_ps(memory + 16 * j, values);
  }
}

}  // namespace brigade::cpu::amx
