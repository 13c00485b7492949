// SPDX-License-Identifier: MIT
// kernels/cpu/amx/tiles.cpp - asking for AMX, and setting it up.
#include "kernels/cpu/amx/tiles.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/amx/amx.h"

namespace brigade::cpu::amx {

namespace {

// The layout that ldtilecfg reads.
struct alignas(64) TileConfig {
  std::uint8_t palette, start_row;
  std::uint8_t reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// In memory that no optimisation touches: g++ tells the compiler of 8 of the 64 bytes that the instruction reads.
constexpr TileConfig kEightFullTiles{.palette = 1,
                                     .start_row = 0,
                                     .reserved = {},
                                     .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                     .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

// Processor: CPUID leaf 7. System: tile data is off for a process until it asks (Linux 5.16).
bool ask() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  constexpr long kTileData = 18;
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, kTileData) != 0) return false;
  return static_cast<bool>(__builtin_cpu_supports("avx512bw")) &&
         static_cast<bool>(__builtin_cpu_supports("avx512vl")) &&
         static_cast<bool>(__builtin_cpu_supports("avx512bf16"));
}

}  // namespace

bool available() {
  static const bool answer = ask();
  return answer;
}

TileScope::TileScope() { _tile_loadconfig(&kEightFullTiles); }

}  // namespace brigade::cpu::amx
