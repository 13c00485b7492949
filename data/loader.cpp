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

// Batches are numbered on from epoch 0, step 0: number = epoch * steps + step. Where an epoch's rest comes first, from
// there.
std::int64_t first_number(const LoaderOptions& options, std::int64_t steps) {
  BRIGADE_CHECK(options.start_epoch >= 0 && options.start_step >= 0 && options.start_step <= steps,
                "loader: must start at an epoch >= 0 and a step of 0 to ", steps, "; got epoch ",
                options.start_epoch, ", step ", options.start_step);
  if (options.rest.batches > 0) return 0;
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
    : set_(checked(set)),
      options_(options),
      augmenter_(options.augment, set.normalization, options.seed),
      sampler_({.samples = set.size(),
                .batch_size = options.batch_size,
                .rank = options.rank,
                .size = options.size,
                .seed = options.seed,
                .shuffle = options.shuffle}),
      prefetcher_([this](std::int64_t number) { return make(number); },
                  first_number(options, sampler_.steps_per_epoch()), std::numeric_limits<std::int64_t>::max(),
                  options.threads, options.prefetch) {
  BRIGADE_CHECK(options.images == ImagesAs::floats || options.augment.noise_std == 0,
                "loader: bytes come without noise; got noise_std ", options.augment.noise_std);
}

Batch Loader::make(std::int64_t number) {
  const std::int64_t steps = steps_per_epoch(), rest = options_.rest.batches;
  if (number < rest) {
    Batch batch = make_batch(set_, augmenter_, sampler_.rest(options_.start_epoch, options_.rest, number),
                             options_.start_epoch, number, options_.format, options_.images);
    batch.end = options_.rest.cut(number + 1);
    batch.uneven = true;
    return batch;
  }
  if (rest > 0) number += (options_.start_epoch + 1) * steps - rest;
  const std::int64_t epoch = number / steps, step = number % steps;
  const Order order = order_of(epoch);
  Batch batch = make_batch(set_, augmenter_,
                           std::span(*order).subspan(static_cast<std::size_t>(step * options_.batch_size),
                                                     static_cast<std::size_t>(options_.batch_size)),
                           epoch, step, options_.format, options_.images);
  batch.end = (step + 1) * options_.size * options_.batch_size;
  return batch;
}

Batch Loader::next() {
  const TimedScope span(SpanKind::data);  // What training waits for data.
  Batch batch = *prefetcher_.next();
  if (options_.images == ImagesAs::floats) fault_point(FaultAt::data, batch.images);
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
