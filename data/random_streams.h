// SPDX-License-Identifier: MIT
// data/random_streams.h - who draws which random numbers. Everything random in data/ is a pure function of
// (seed, stream, index), see core/rng.h; the streams named here never overlap.
#pragma once

#include <cstdint>
#include <span>

namespace brigade::data {

/// What a random number is for. The values are part of the reproducibility contract: never renumber.
enum class Purpose : std::uint64_t {
  shuffle = 1,            ///< sub-stream: epoch
  augment_placement = 2,  ///< sub-stream: epoch
  augment_noise = 3,      ///< sub-stream: epoch
  synthetic_pattern = 4,  ///< sub-stream: class
  synthetic_train = 5,    ///< sub-stream: image
  synthetic_test = 6,     ///< sub-stream: image
};

/// The Philox stream of (purpose, sub-stream). Purposes start at 1, which keeps clear of the low streams that
/// a Generator hands out for weights and dropout under the same seed.
constexpr std::uint64_t stream_of(Purpose purpose, std::int64_t sub) {
  return static_cast<std::uint64_t>(purpose) << 56 | static_cast<std::uint64_t>(sub);
}

/// Fills `out` with elements first, first + 1, … of the normal sequence (seed, stream): the same values as
/// normal_at(), at a quarter of its cost. `first` and out.size() must be multiples of 4.
void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::span<float> out);

}  // namespace brigade::data
