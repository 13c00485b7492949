// SPDX-License-Identifier: MIT
// apps/common/course.h - where the steps of a run lie in its epochs: trivial for one that begins, less so for one that
// goes on from a checkpoint with other batches. Read before: data/sampler.h.
#pragma once

#include <cstdint>
#include <string>

#include "apps/common/train_options.h"

namespace brigade::apps {

/// Where the samples of a run stand: what a checkpoint says of its sampler.
struct SamplerPosition {
  std::int64_t step = 0;          ///< Optimizer steps done.
  std::int64_t epoch = 0;         ///< Of the last batch…
  std::int64_t sample = 0;        ///< … and how many of the epoch's order have been seen since it began.
  std::int64_t global_batch = 0;  ///< Samples of all ranks in a backward…
  std::int64_t accumulate = 1;    ///< … and backwards per step.
  std::int64_t samples = 0;       ///< In the training set.
};

/// The steps first + 1 … steps of a run.
struct Course {
  std::int64_t first = 0;
  std::int64_t steps = 0;
  std::int64_t per_epoch = 0;        ///< Steps of a whole epoch.
  std::int64_t images_per_step = 0;  ///< Of all ranks.
  std::int64_t epoch_shift = 0;      ///< Epochs end where (step + epoch_shift) % per_epoch is 0.
  std::int64_t schedule_shift = 0;
  std::int64_t schedule_steps = 0;  ///< Of the learning rate's schedule.
  data::LoaderOptions loading;      ///< Starts where the run does.
  std::string note;                 ///< What is not as it would have been; empty: nothing.

  bool epoch_ends(std::int64_t step) const { return (step + epoch_shift) % per_epoch == 0; }
  /// --eval-every `epochs`, 0 for at the end only.
  bool evaluates(std::int64_t step, std::int64_t epochs) const {
    return step == steps ||
           (epochs > 0 && epoch_ends(step) && (step + epoch_shift) / per_epoch % epochs == 0);
  }
  /// For optim::Schedule: counts from 0.
  std::int64_t schedule_index(std::int64_t step) const;
};

/// `from`: nullptr for a run that begins. With another global batch than saved, what is left of the epoch is cut into
/// equal batches of at most the new size, so that every sample is seen once; then whole epochs follow.
/// Throws Error if the checkpoint is of another training set, or an epoch has too few batches.
Course make_course(const TrainOptions& options, std::int64_t samples, int rank, int size,
                   const SamplerPosition* from);

}  // namespace brigade::apps
