// SPDX-License-Identifier: MIT
// data/random_streams.cpp - normal numbers in bulk, by looking up quantiles.
#include "data/random_streams.h"

#include <cmath>
#include <vector>

#include "core/check.h"
#include "core/rng.h"

namespace brigade::data {
namespace {

constexpr std::size_t kQuantiles = 1 << 16;

// Element k is the x below which a normal number lies with probability (k + 1/2) / 65536.
std::vector<float> normal_quantiles() {
  std::vector<float> table(kQuantiles);
  for (std::size_t k = 0; k < kQuantiles / 2; ++k) {
    const double target = (static_cast<double>(k) + 0.5) / kQuantiles;
    double low = -5, high = 0;  // Bisection: slow (some 20 ms in all), but evidently right.
    for (int i = 0; i < 40; ++i) {
      const double middle = (low + high) / 2;
      const bool below = std::erfc(-middle * std::sqrt(0.5)) / 2 < target;
      (below ? low : high) = middle;
    }
    table[k] = static_cast<float>(low);
    table[kQuantiles - 1 - k] = -table[k];  // Symmetric, so the mean is exactly 0.
  }
  return table;
}

}  // namespace

void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::span<float> out) {
  BRIGADE_CHECK(first % 8 == 0 && out.size() % 8 == 0, "fill_normal: needs whole blocks of 8; got first ",
                first, " and size ", out.size());
  static const std::vector<float> quantiles = normal_quantiles();
  const float* table = quantiles.data();
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const auto words = philox(seed, stream, (first + i) / 8);
    for (std::size_t k = 0; k < 4; ++k) {
      out[i + 2 * k] = table[words[k] & 0xffff];
      out[i + 2 * k + 1] = table[words[k] >> 16];
    }
  }
}

}  // namespace brigade::data
