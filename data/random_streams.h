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

/// Fills `out` with elements first, first + 1, … of a standard normal sequence (seed, stream): quantiles of the normal
/// distribution at 16 random bits each, hence within ±4.33. An order of magnitude cheaper than normal_at(), which
/// matters for images: 3072 numbers each. `first` and out.size() must be multiples of 8.
void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::span<float> out);

}  // namespace brigade::data
