// SPDX-License-Identifier: MIT
// data/loader.h - the stream of batches that a rank trains on, and the one it is evaluated on.
// Read before: data/sampler.h, data/augment.h, data/prefetch.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "data/augment.h"
#include "data/batch.h"
#include "data/prefetch.h"
#include "data/sampler.h"

namespace brigade::data {

struct LoaderOptions {
  std::int64_t batch_size = 128;  ///< Per rank.
  int rank = 0;
  int size = 1;
  std::uint64_t seed = 0;  ///< Of order and augmentation; the same on every rank.
  bool shuffle = true;
  AugmentOptions augment{};
  MemoryFormat format = MemoryFormat::channels_last;
  ImagesAs images = ImagesAs::floats;  ///< Bytes: without noise, which is not made of a placement.
  int threads = 1;                     ///< That prepare batches; 0: inside next().
  int prefetch = 4;                    ///< Batches kept ready.
  std::int64_t start_epoch = 0;        ///< Where to resume: the first batch is (start_epoch, start_step).
  std::int64_t start_step = 0;
  RestOfEpoch rest{};  ///< What is left of start_epoch, instead of start_step.
};

/// An endless sequence of training batches: all steps of start_epoch (or what `rest` makes of it), then
/// the next epoch, and so on. The loader moves from epoch to epoch by itself, so every epoch has its own
/// order and augmentation without the caller's help.
///
/// Batch (epoch, step) is a function of the data set and of the options (but for threads, prefetch and where
/// to start): a run resumed at (epoch, step) sees what the uninterrupted one saw.
class Loader {
 public:
  /// `set` must outlive the loader, unchanged. Throws Error for an inconsistent data set, options out of
  /// range, or fewer samples than one global batch.
  Loader(const Dataset& set, const LoaderOptions& options);

  /// Blocks until the next batch is ready. Rethrows what went wrong on a worker thread.
  Batch next();

  std::int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }

 private:
  using Order = std::shared_ptr<const std::vector<std::int64_t>>;
  Order order_of(std::int64_t epoch);
  Batch make(std::int64_t number);

  const Dataset& set_;
  LoaderOptions options_;
  Augmenter augmenter_;
  Sampler sampler_;
  std::mutex mutex_;
  // The orders of the last even and the last odd epoch: around the turn of an epoch workers need both.
  std::array<std::pair<std::int64_t, Order>, 2> orders_;
  Prefetcher prefetcher_;  // Last: its threads use all of the above.
};

struct EvaluationOptions {
  std::int64_t batch_size = 128;  ///< Per rank; the last batch may be smaller.
  int rank = 0;
  int size = 1;
  MemoryFormat format = MemoryFormat::channels_last;
  int threads = 1;
  int prefetch = 4;
};

/// One pass over this rank's share of `set`, in order, without augmentation. All ranks together see every
/// image exactly once; a rank's share, and so its number of batches, may differ by one or be zero. Make a new
/// one for each evaluation.
class EvaluationLoader {
 public:
  /// `set` must outlive the loader, unchanged. Throws Error as Loader does.
  EvaluationLoader(const Dataset& set, const EvaluationOptions& options);

  /// Blocks until the next batch is ready; nothing when the pass is over.
  std::optional<Batch> next() { return prefetcher_.next(); }

  std::int64_t samples() const { return static_cast<std::int64_t>(indices_.size()); }  ///< Of this rank.

 private:
  std::vector<std::int64_t> indices_;
  Prefetcher prefetcher_;
};

}  // namespace brigade::data
