// SPDX-License-Identifier: MIT
// core/rng.h - counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC'11). A number is a pure function of (seed, stream, index), so it does not depend on the
// thread, rank or device that asks for it. Included by CUDA files.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace brigade {

/// Ten rounds of Philox-4x32: four independent 32-bit words for (seed, stream, index).
BRIGADE_HD inline std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream,
                                                      std::uint64_t index) {
  std::uint32_t c0 = static_cast<std::uint32_t>(index), c1 = static_cast<std::uint32_t>(index >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// A uniform float in [0, 1) with 24 random bits.
BRIGADE_HD inline float uniform01(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

/// Two independent standard normal floats from two words (Box and Muller, 1958).
BRIGADE_HD inline std::array<float, 2> normal2(std::uint32_t a, std::uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 1.0) * 0x1p-32));
  const double angle = 6.283185307179586 * (static_cast<double>(b) * 0x1p-32);
  return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

/// Element `i` of the normal sequence (seed, stream); elements 4k..4k+3 share one Philox block.
BRIGADE_HD inline float normal_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  const auto words = philox(seed, stream, i / 4);
  const int pair = static_cast<int>(i % 4) / 2 * 2;
  return normal2(words[static_cast<std::size_t>(pair)], words[static_cast<std::size_t>(pair) + 1])[i % 2];
}

/// Element `i` of the uniform sequence (seed, stream) in [0, 1).
BRIGADE_HD inline float uniform_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t i) {
  return uniform01(philox(seed, stream, i / 4)[i % 4]);
}

/// Hands out streams: each draw of a tensor takes the next one. Two numbers are its whole state, so that
/// checkpointing (activations or files) saves and restores it exactly.
struct Generator {
  std::uint64_t seed = 0;
  std::uint64_t next_stream = 0;

  /// The stream for one tensor's worth of numbers.
  std::uint64_t take() { return next_stream++; }
  friend bool operator==(const Generator&, const Generator&) = default;
};

/// The calling thread's generator: dropout and initialisation draw from it. One per rank thread.
Generator& default_generator();

}  // namespace brigade
