// SPDX-License-Identifier: MIT
// tests/core/rng_test.cpp - Philox against its authors' vectors, and the distributions made from it.
#include "core/rng.h"

#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/test.h"

using namespace brigade;
using Words = std::array<std::uint32_t, 4>;

// Random123's kat_vectors list counter words c0 c1 c2 c3 and key words k0 k1; here index = c1:c0, stream =
// c3:c2 and seed = k1:k0.
TEST_CASE("philox gives the known answers of Random123", "[core][rng]") {
  constexpr std::uint64_t kOnes = ~std::uint64_t{0};
  REQUIRE(philox(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  REQUIRE(philox(kOnes, kOnes, kOnes) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform01 begins at 0 and never reaches 1", "[core][rng]") {
  REQUIRE(uniform01(0) == 0.0f);
  REQUIRE(uniform01(0x80000000u) == 0.5f);
  REQUIRE(uniform01(0xffffffffu) == 1.0f - 0x1p-24f);
}

TEST_CASE("normal2 is finite at the ends of its words", "[core][rng]") {
  for (std::uint32_t a : {0u, 1u, 0xffffffffu})
    for (std::uint32_t b : {0u, 0x80000000u, 0xffffffffu})
      for (float value : normal2(a, b)) REQUIRE(std::isfinite(value));
  REQUIRE(normal2(0xffffffffu, 123)[0] == 0.0f);
}

TEST_CASE("uniform numbers have the moments and the buckets of a uniform distribution", "[core][rng]") {
  constexpr int kCount = 100000;
  double sum = 0, squares = 0;
  std::vector<int> buckets(10, 0);
  for (int i = 0; i < kCount; ++i) {
    const double u = uniform_at(42, 3, static_cast<std::uint64_t>(i));
    sum += u;
    squares += u * u;
    ++buckets[static_cast<std::size_t>(u * 10)];
  }
  // Five standard errors: sigma of the mean is 0.289 / sqrt(n), of the mean square 0.298 / sqrt(n).
  REQUIRE_THAT(sum / kCount, Catch::Matchers::WithinAbs(0.5, 5 * 0.289 / std::sqrt(kCount)));
  REQUIRE_THAT(squares / kCount, Catch::Matchers::WithinAbs(1.0 / 3, 5 * 0.298 / std::sqrt(kCount)));
  for (int n : buckets) REQUIRE(std::abs(n - kCount / 10) < 5 * std::sqrt(kCount * 0.09));
}

TEST_CASE("normal numbers have mean 0, variance 1, kurtosis 3 and independent pairs", "[core][rng]") {
  constexpr int kCount = 100000;
  double sum = 0, squares = 0, fourths = 0, neighbours = 0, last = 0;
  for (int i = 0; i < kCount; ++i) {
    const double z = normal_at(7, 0, static_cast<std::uint64_t>(i));
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
    neighbours += z * last;
    last = z;
  }
  // Five standard errors: variances of z, z², z⁴ and of a product are 1, 2, 96 and 1.
  const double error = 5 / std::sqrt(kCount);
  REQUIRE_THAT(sum / kCount, Catch::Matchers::WithinAbs(0, error));
  REQUIRE_THAT(squares / kCount, Catch::Matchers::WithinAbs(1, error * std::sqrt(2)));
  REQUIRE_THAT(fourths / kCount, Catch::Matchers::WithinAbs(3, error * std::sqrt(96)));
  REQUIRE_THAT(neighbours / kCount, Catch::Matchers::WithinAbs(0, error));
}

TEST_CASE("seeds, streams and indices give different numbers, equal ones the same", "[core][rng]") {
  std::set<float> seen;
  for (std::uint64_t seed : {1u, 2u})
    for (std::uint64_t stream : {0u, 1u, 2u})
      for (std::uint64_t i = 0; i < 8; ++i) seen.insert(normal_at(seed, stream, i));
  REQUIRE(seen.size() == 48);
  REQUIRE(normal_at(1, 2, 3) == normal_at(1, 2, 3));
  REQUIRE(uniform_at(1, 2, std::uint64_t{1} << 40) != uniform_at(1, 2, 0));
}

TEST_CASE("a generator hands out one stream after another and is restored by a copy", "[core][rng]") {
  Generator generator{.seed = 5};
  REQUIRE(generator.take() == 0);
  const Generator saved = generator;
  REQUIRE(generator.take() == 1);
  REQUIRE_FALSE(generator == saved);
  generator = saved;
  REQUIRE(generator.take() == 1);
}

TEST_CASE("every thread has a default generator of its own", "[core][rng]") {
  const Generator before = default_generator();
  std::thread([] { default_generator().seed = 999; }).join();
  REQUIRE(default_generator() == before);
}
