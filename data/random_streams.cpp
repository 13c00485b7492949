// SPDX-License-Identifier: MIT
// data/random_streams.cpp - normal numbers in bulk.
#include "data/random_streams.h"

#include "core/check.h"
#include "core/rng.h"

namespace brigade::data {

void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::span<float> out) {
  BRIGADE_CHECK(first % 4 == 0 && out.size() % 4 == 0, "fill_normal: needs whole blocks of 4; got first ",
                first, " and size ", out.size());
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const auto words = philox(seed, stream, (first + i) / 4);
    const auto [a, b] = normal2(words[0], words[1]);
    const auto [c, d] = normal2(words[2], words[3]);
    out[i] = a;
    out[i + 1] = b;
    out[i + 2] = c;
    out[i + 3] = d;
  }
}

}  // namespace brigade::data
