// SPDX-License-Identifier: MIT
// data/loader.cpp - numbers batches through all epochs and lets a Prefetcher make them.
#include "data/loader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/fault_point.h"
#include "core/timeline.h"

namespace brigade::data {
namespace {

// First of all checks: what follows in a constructor relies on a sound data set.
const Dataset& checked(const Dataset& set) {
  check_dataset("loader", set);
  return set;
}

// Batches are numbered on from epoch 0, step 0: number = epoch * steps + step.
std::int64_t first_number(const LoaderOptions& options, std::int64_t steps) {
  BRIGADE_CHECK(options.start_epoch >= 0 && options.start_step >= 0 && options.start_step <= steps,
                "loader: must start at an epoch >= 0 and a step of 0 to ", steps, "; got epoch ",
                options.start_epoch, ", step ", options.start_step);
  return options.start_epoch * steps + options.start_step;
}

// Before anything is divided by the batch size.
const Dataset& checked(const Dataset& set, const EvaluationOptions& options) {
  BRIGADE_CHECK(options.batch_size >= 1, "evaluation loader: batch_size must be at least 1; got ",
                options.batch_size);
  return checked(set);
}

}  // namespace

Loader::Loader(const Dataset& set, const LoaderOptions& options)
    : sampler_({.samples = checked(set).size(),
                .batch_size = options.batch_size,
                .rank = options.rank,
                .size = options.size,
                .seed = options.seed,
                .shuffle = options.shuffle}),
      prefetcher_(
          [this, &set, batch_size = options.batch_size, format = options.format,
           augmenter = Augmenter(options.augment, set.normalization, options.seed)](std::int64_t number) {
            const std::int64_t epoch = number / steps_per_epoch(), step = number % steps_per_epoch();
            const Order order = order_of(epoch);
            const std::span all(*order);
            return make_batch(set, augmenter,
                              all.subspan(static_cast<std::size_t>(step * batch_size),
                                          static_cast<std::size_t>(batch_size)),
                              epoch, step, format);
          },
          first_number(options, sampler_.steps_per_epoch()), std::numeric_limits<std::int64_t>::max(),
          options.threads, options.prefetch) {}

Batch Loader::next() {
  const TimedScope span(SpanKind::data);  // What training waits for data.
  Batch batch = *prefetcher_.next();
  fault_point(FaultAt::data, batch.images);
  return batch;
}

Loader::Order Loader::order_of(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  auto& [held, order] = orders_[static_cast<std::size_t>(epoch % 2)];
  if (!order || held != epoch) {
    order = std::make_shared<const std::vector<std::int64_t>>(sampler_.indices(epoch));
    held = epoch;
  }
  return order;
}

EvaluationLoader::EvaluationLoader(const Dataset& set, const EvaluationOptions& options)
    : indices_(evaluation_indices(checked(set, options).size(), options.rank, options.size)),
      prefetcher_(
          [this, &set, batch_size = options.batch_size, format = options.format,
           augmenter = Augmenter({}, set.normalization, 0)](std::int64_t step) {
            const std::span all(indices_);
            const std::int64_t begin = step * batch_size, count = std::min(batch_size, samples() - begin);
            return make_batch(set, augmenter,
                              all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                              0, step, format);
          },
          0, samples() / options.batch_size + (samples() % options.batch_size != 0), options.threads,
          options.prefetch) {}

}  // namespace brigade::data
