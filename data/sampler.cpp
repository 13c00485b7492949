// SPDX-License-Identifier: MIT
// data/sampler.cpp - permutations and shards.
#include "data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/rng.h"
#include "data/random_streams.h"

namespace brigade::data {
namespace {

std::vector<std::int64_t> count_up(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(end - begin));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

void check_rank(const char* op, int rank, int size) {
  BRIGADE_CHECK(size >= 1 && rank >= 0 && rank < size, op, ": needs 0 <= rank < size; got rank ", rank,
                ", size ", size);
}

}  // namespace

std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
  BRIGADE_CHECK(n >= 0 && epoch >= 0, "permutation: n and epoch must not be negative; got n ", n, ", epoch ",
                epoch);
  std::vector<std::int64_t> order = count_up(0, n);
  for (std::size_t i = order.size(); i > 1; --i) {
    const auto words = philox(seed, stream_of(Purpose::shuffle, epoch), i);
    const std::uint64_t random = std::uint64_t{words[0]} << 32 | words[1];
    std::swap(order[i - 1], order[random % i]);  // 64 random bits: the bias is below n / 2^64.
  }
  return order;
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check_rank("sampler", options.rank, options.size);
  BRIGADE_CHECK(options.batch_size >= 1, "sampler: batch_size must be at least 1; got ", options.batch_size);
  // Divide instead of multiplying: ranks x batch might not fit 64 bits.
  steps_ = options.samples / options.batch_size / options.size;
  BRIGADE_CHECK(steps_ >= 1,
                "sampler: one global batch needs ranks * batch_size samples; take fewer or give more; got ",
                options.samples, " samples, ", options.size, " ranks, batch_size ", options.batch_size);
}

std::vector<std::int64_t> Sampler::order(std::int64_t epoch) const {
  return options_.shuffle ? permutation(options_.samples, options_.seed, epoch)
                          : count_up(0, options_.samples);
}

std::vector<std::int64_t> Sampler::rest(std::int64_t epoch, const RestOfEpoch& rest, std::int64_t k) const {
  BRIGADE_CHECK(
      0 <= rest.begin && rest.begin <= rest.end && rest.end <= options_.samples && 0 <= k && k < rest.batches,
      "sampler: the rest of an epoch must lie in its ", options_.samples, " samples; got [", rest.begin, ", ",
      rest.end, "), batch ", k, " of ", rest.batches);
  const auto all = order(epoch);
  const std::int64_t begin = rest.cut(k), count = rest.cut(k + 1) - begin;
  const auto at = [&](std::int64_t rank) { return all.begin() + begin + count * rank / options_.size; };
  return {at(options_.rank), at(options_.rank + 1)};
}

std::vector<std::int64_t> Sampler::indices(std::int64_t epoch) const {
  const auto order = this->order(epoch);
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(steps_ * options_.batch_size));
  for (std::int64_t step = 0; step < steps_; ++step) {
    const auto slice = order.begin() + (step * options_.size + options_.rank) * options_.batch_size;
    mine.insert(mine.end(), slice, slice + options_.batch_size);
  }
  return mine;
}

std::vector<std::int64_t> evaluation_indices(std::int64_t samples, int rank, int size) {
  check_rank("evaluation_indices", rank, size);
  BRIGADE_CHECK(samples >= 0, "evaluation_indices: samples must not be negative; got ", samples);
  return count_up(samples * rank / size, samples * (rank + 1) / size);
}

}  // namespace brigade::data
