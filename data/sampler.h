// SPDX-License-Identifier: MIT
// data/sampler.h - which rank sees which sample, and when. Pure functions: no state to forget to advance.
// Read next: data/loader.h, which walks the epochs.
#pragma once

#include <cstdint>
#include <vector>

namespace brigade::data {

/// The numbers 0 … n-1 in an order that is a function of (n, seed, epoch) only (Fisher and Yates's shuffle
/// over counter-based random numbers).
std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed, std::int64_t epoch);

struct SamplerOptions {
  std::int64_t samples = 0;     ///< In the training set.
  std::int64_t batch_size = 0;  ///< Per rank.
  int rank = 0;
  int size = 1;
  std::uint64_t seed = 0;  ///< The same on every rank.
  bool shuffle = true;     ///< false: the order on disk, the same in every epoch.
};

/// What is left of an epoch for ranks that do not go on with the batches it was begun with: positions [begin, end) of
/// its permutation, as `batches` global batches of equal size, but for one sample.
struct RestOfEpoch {
  std::int64_t begin = 0, end = 0;
  std::int64_t batches = 0;  ///< 0: no such thing.
  /// Where batch k begins and batch k - 1 ends.
  std::int64_t cut(std::int64_t k) const { return begin + (end - begin) * k / batches; }
};

/// One rank's share of training.
///
/// With G = size * batch_size, global batch k of an epoch is positions [k G, (k + 1) G) of the epoch's
/// permutation, and rank r takes the r-th contiguous slice of it. Hence shards are disjoint, and which
/// samples make up a global batch depends on G but not on how many ranks share it. Samples after the last
/// whole global batch sit the epoch out (others in each epoch, when shuffled): ranks always agree on the
/// number and size of their batches.
class Sampler {
 public:
  /// Throws Error if rank, size or batch_size make no sense, or there are fewer
  /// samples than one global batch.
  explicit Sampler(const SamplerOptions& options);

  std::int64_t steps_per_epoch() const { return steps_; }
  const SamplerOptions& options() const { return options_; }

  /// This rank's samples of `epoch`: batch k is elements [k * batch_size, (k + 1) * batch_size).
  std::vector<std::int64_t> indices(std::int64_t epoch) const;
  /// This rank's samples of batch `k` of what is left of `epoch`: a contiguous slice, as above.
  std::vector<std::int64_t> rest(std::int64_t epoch, const RestOfEpoch& rest, std::int64_t k) const;

 private:
  std::vector<std::int64_t> order(std::int64_t epoch) const;

  SamplerOptions options_;
  std::int64_t steps_ = 0;
};

/// One rank's share of an evaluation: a contiguous range. The ranges of all ranks cover 0 … samples-1 exactly
/// once, without padding, so that counts summed over ranks do not depend on their number. Shares differ by at
/// most one; with more ranks than samples some are empty.
std::vector<std::int64_t> evaluation_indices(std::int64_t samples, int rank, int size);

}  // namespace brigade::data
