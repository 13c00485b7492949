// SPDX-License-Identifier: MIT
// kernels/cpu/amx/tiles.cpp - setting AMX up.
#include "kernels/cpu/amx/tiles.h"

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

}  // namespace

TileScope::TileScope() { _tile_loadconfig(&kEightFullTiles); }

}  // namespace brigade::cpu::amx
