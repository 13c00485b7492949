// SPDX-License-Identifier: MIT
// kernels/cpu/amx/weight_sums.h - the sums of a block of weight gradients, 32 outputs by 32 inputs at one kernel
// position: four tiles of f32 (outputs 0-15 and 16-31 by inputs 0-15 and 16-31), between memory and tile registers.
#pragma once

#include <algorithm>

#include "kernels/cpu/amx/geometry.h"
#include "kernels/cpu/amx/multiply.h"
#include "kernels/cpu/amx/strided.h"

namespace brigade::cpu::amx {

/// sums [positions, kSums] of one block of outputs and inputs -> dw [O, I, positions].
inline void write_weights(const float* sums, std::int64_t out_block, std::int64_t in_block, const Geometry& g,
                          float* dw) {
  const std::int64_t o = out_block * kBlock, c = in_block * kBlock;
  const std::int64_t rows = std::min(kBlock, g.out_channels - o), width = std::min(kBlock, g.in_channels - c);
  const auto row_of = [&](std::int64_t k, std::int64_t r, std::int64_t half) {
    return sums + k * kSums + (r / 16 * 2 + half) * kTileSums + r % 16 * 16;
  };
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = dw + ((o + r) * g.in_channels + c) * g.positions;
    if (g.positions == kNine && width == kBlock) {
      for (std::int64_t half = 0; half < 2; ++half) {
        __m512 values[kNine];
        for (std::int64_t k = 0; k < kNine; ++k) values[k] = _mm512_load_ps(row_of(k, r, half));
        join_nine(values, to + half * 16 * kNine);
      }
      continue;
    }
    for (std::int64_t v = 0; v < width; ++v)
      for (std::int64_t k = 0; k < g.positions; ++k) to[v * g.positions + k] = row_of(k, r, v / 16)[v % 16];
  }
}

}  // namespace brigade::cpu::amx
