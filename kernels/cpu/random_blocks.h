// SPDX-License-Identifier: MIT
// kernels/cpu/random_blocks.h - the random numbers of core/rng.h, many at a time: the same bits as uniform01() and
// normal2() give one by one, in loops that vectorise. Used by random.cpp: ResNet-18 starts from 11 million of them.
#pragma once

#include <cstdint>

namespace brigade::cpu {

/// At most so many Philox blocks a call.
inline constexpr int kRandomBlocks = 64;

/// The four numbers of each of `count` blocks from number `first` on of the sequence (seed, stream): out[0] is
/// uniform_at(seed, stream, 4 * first).
void uniform_blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, int count, float* out);
/// The same for normal_at().
void normal_blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, int count, float* out);

/// normal2(a[i], b[i]) for i < count <= kRandomBlocks.
void normal_pairs(const std::uint32_t* a, const std::uint32_t* b, int count, float* first, float* second);

}  // namespace brigade::cpu
