// SPDX-License-Identifier: MIT
// tests/data/sampler_test.cpp - cases A14 and A15: orders, shards, and that nobody is counted twice.
#include "data/sampler.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/check.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::data;

namespace {

using Indices = std::vector<std::int64_t>;

Indices shard(int rank, int size, std::int64_t epoch, SamplerOptions options) {
  options.rank = rank;
  options.size = size;
  return Sampler(options).indices(epoch);
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices first_numbers(std::int64_t n) {
  Indices numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

TEST_CASE("orders differ between epochs and seeds and repeat for the same ones", "[data][sampler][A14]") {
  const SamplerOptions options{.samples = 1000, .batch_size = 10, .seed = 5};
  std::set<Indices> seen;
  for (const std::int64_t epoch : {0, 1, 2})
    for (const int rank : {0, 1}) {
      const Indices indices = shard(rank, 2, epoch, options);
      REQUIRE(indices == shard(rank, 2, epoch, options));
      seen.insert(indices);
    }
  REQUIRE(seen.size() == 6);
  SamplerOptions other = options;
  other.seed = 6;
  REQUIRE(shard(0, 2, 0, options) != shard(0, 2, 0, other));
}

TEST_CASE("the shards of all ranks are disjoint and complete", "[data][sampler][A14]") {
  const int size = GENERATE(1, 2, 3, 4);
  const bool shuffle = GENERATE(true, false);
  const SamplerOptions options{.samples = 120, .batch_size = 5, .shuffle = shuffle};  // 120 = 2 x 3 x 4 x 5
  for (const std::int64_t epoch : {0, 1, 2}) {
    Indices all;
    for (int rank = 0; rank < size; ++rank) {
      const Indices mine = shard(rank, size, epoch, options);
      REQUIRE(static_cast<int>(mine.size()) == 120 / size);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    REQUIRE(sorted(all) == first_numbers(120));
  }
}

TEST_CASE("a global batch holds the same samples in the same order however many ranks share it",
          "[data][sampler]") {
  const std::int64_t global = 12, epoch = 3;
  const Indices whole = shard(0, 1, epoch, {.samples = 100, .batch_size = global});
  for (const int size : {2, 3, 4}) {
    const std::int64_t batch = global / size;
    for (std::int64_t step = 0; step < 100 / global; ++step)
      for (int rank = 0; rank < size; ++rank) {
        const Indices mine = shard(rank, size, epoch, {.samples = 100, .batch_size = batch});
        REQUIRE(std::equal(mine.begin() + step * batch, mine.begin() + (step + 1) * batch,
                           whole.begin() + step * global + rank * batch));
      }
  }
}

TEST_CASE("without shuffling, rank r takes the r-th slice of consecutive records in every epoch",
          "[data][sampler]") {
  const SamplerOptions options{.samples = 14, .batch_size = 2, .shuffle = false};
  for (const std::int64_t epoch : {0, 1}) {
    REQUIRE(shard(0, 3, epoch, options) == Indices{0, 1, 6, 7});
    REQUIRE(shard(1, 3, epoch, options) == Indices{2, 3, 8, 9});
    REQUIRE(shard(2, 3, epoch, options) == Indices{4, 5, 10, 11});  // 12 and 13 make no whole global batch
  }
}

TEST_CASE("the last incomplete global batch is dropped, and other samples in other epochs",
          "[data][sampler]") {
  const SamplerOptions options{.samples = 10, .batch_size = 4};
  const Sampler sampler(options);
  REQUIRE(sampler.steps_per_epoch() == 2);
  std::set<std::int64_t> seen;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const Indices indices = sampler.indices(epoch);
    REQUIRE(indices.size() == 8);
    seen.insert(indices.begin(), indices.end());
  }
  REQUIRE(seen.size() == 10);
}

TEST_CASE("a permutation is uniform: every sample comes first about equally often", "[data][sampler]") {
  // 6 orders of 3 numbers over 6000 epochs: 1000 each, standard deviation 29.
  std::map<Indices, int> count;
  for (std::int64_t epoch = 0; epoch < 6000; ++epoch) ++count[permutation(3, 11, epoch)];
  REQUIRE(count.size() == 6);
  for (const auto& [order, times] : count) REQUIRE(std::abs(times - 1000) < 150);
}

TEST_CASE("evaluation shards hold every image exactly once at any world size", "[data][sampler][A15]") {
  const auto [samples, size] = GENERATE(table<std::int64_t, int>(
      {{10, 1}, {10, 2}, {10, 3}, {10, 4}, {10'000, 1}, {10'000, 3}, {10'000, 4}, {2, 4}, {1, 3}}));
  Indices all;
  for (int rank = 0; rank < size; ++rank) {
    const Indices mine = evaluation_indices(samples, rank, size);
    REQUIRE(std::abs(static_cast<std::int64_t>(mine.size()) * size - samples) < size);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  REQUIRE(sorted(all) == first_numbers(samples));
}

TEST_CASE("the sampler refuses impossible shapes and names the numbers", "[data][sampler][error]") {
  REQUIRE_THROWS_WITH(Sampler({.samples = 7, .batch_size = 2, .size = 4}),
                      ContainsSubstring("7 samples, 4 ranks, batch_size 2"));
  REQUIRE_NOTHROW(Sampler({.samples = 8, .batch_size = 2, .size = 4}));
  REQUIRE_THROWS_WITH(Sampler({.samples = 8, .batch_size = 0}), ContainsSubstring("at least 1; got 0"));
  REQUIRE_THROWS_WITH(Sampler({.samples = 8, .batch_size = 1, .rank = 2, .size = 2}),
                      ContainsSubstring("rank 2, size 2"));
  REQUIRE_THROWS_WITH(evaluation_indices(8, 0, 0), ContainsSubstring("rank 0, size 0"));
  // ranks * batch_size overflows 64 bits.
  REQUIRE_THROWS_WITH(Sampler({.samples = 8, .batch_size = std::int64_t{1} << 62, .size = 4}),
                      ContainsSubstring("one global batch"));
}
