// SPDX-License-Identifier: MIT
// kernels/cpu/amx/tiles.h - AMX: eight registers of 16 rows of 64 bytes, and one instruction that multiplies two of
// them: C[16][16] += A[16][32] B[32][16] in bf16 with f32 sums, 16,384 multiplications in 16 cycles. B lies in pairs
// of rows: B[k / 2][column][k % 2]. Intel's Architecture Instruction Set Extensions manual, chapter 3. Included by
// kernels/cpu/amx/*.cpp only, which are compiled for AVX-512 and AMX. Read next: pack.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace brigade::cpu::amx {

inline constexpr std::int64_t kTileRows = 16;   ///< Also its columns of f32.
inline constexpr std::int64_t kTileDepth = 32;  ///< bf16 values in a row.
inline constexpr std::int64_t kTileValues = kTileRows * kTileDepth;
inline constexpr std::int64_t kTileBytes = 1024;

/// The calling thread's tile registers, all eight of full size, while the object lives. Without one alive tile
/// instructions fault; with one alive the kernel saves 8 KiB more at each switch of threads.
class TileScope {
 public:
  TileScope();
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

/// Between writing to memory and loading tiles from it in one function: g++ 12 does not know what a tile load reads,
/// and might write later.
inline void before_tile_loads() { asm volatile("" ::: "memory"); }

}  // namespace brigade::cpu::amx
