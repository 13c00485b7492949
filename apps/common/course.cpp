// SPDX-License-Identifier: MIT
// apps/common/course.cpp - see the header.
#include "apps/common/course.h"

#include <algorithm>

namespace brigade::apps {
namespace {

// Goes on in the middle of an epoch whose batches were of another size.
void cut_rest(Course& course, const TrainOptions& options, const SamplerPosition& from, int size) {
  data::LoaderOptions& loading = course.loading;
  const std::int64_t batch = size * options.batch_size, shares = size * options.accumulate;
  // Those behind the last whole batch would have sat the epoch out, and still do.
  const std::int64_t end = from.samples / from.global_batch * from.global_batch;
  const std::int64_t left = std::max<std::int64_t>(end - from.sample, 0);
  const std::int64_t per_step = batch * options.accumulate;
  const std::int64_t steps = left < shares ? 0 : (left + per_step - 1) / per_step;
  course.note = str("the rest of epoch ", from.epoch + 1, ", ", left, " samples, in ", steps, " step",
                    steps == 1 ? "" : "s", " of about ", steps > 0 ? left / steps : 0, " instead of ",
                    from.global_batch * from.accumulate);
  if (steps == 0 && left > 0) course.note += str("; too few for ", shares, " shares: they sit it out");
  loading.start_epoch = from.epoch + (steps == 0 ? 1 : 0);
  loading.start_step = 0;
  if (steps > 0) loading.rest = {from.sample, end, steps * options.accumulate};
  course.epoch_shift = (from.epoch + 1) * course.per_epoch - steps - course.first;
}

}  // namespace

std::int64_t Course::schedule_index(std::int64_t step) const {
  return std::clamp<std::int64_t>(step - 1 + schedule_shift, 0, schedule_steps - 1);
}

Course make_course(const TrainOptions& options, std::int64_t samples, int rank, int size,
                   const SamplerPosition* from) {
  Course course;
  course.loading = options.loading(rank, size);
  const std::int64_t batches = samples / options.batch_size / size;
  course.per_epoch = batches / options.accumulate;
  course.images_per_step = size * options.batch_size * options.accumulate;
  BRIGADE_CHECK(batches == 0 || course.per_epoch > 0, "--accumulate: an epoch has only ", batches,
                " batches; got ", options.accumulate);
  if (batches == 0) course.per_epoch = 1;  // The loader will refuse it, and say more.
  if (from != nullptr) {
    BRIGADE_CHECK(from->samples == samples, "--resume: the checkpoint is of a training set of ",
                  from->samples, " samples; got ", samples);
    course.first = from->step;
    if (from->global_batch == size * options.batch_size) {
      // Batches lie as they did: those of another accumulation too.
      course.loading.start_epoch = from->epoch;
      course.loading.start_step = std::min(from->sample / from->global_batch, batches);
      const std::int64_t done = from->epoch * batches + course.loading.start_step;
      course.epoch_shift = done / options.accumulate - course.first;
    } else {
      cut_rest(course, options, *from, size);
    }
  }
  if (options.steps > 0) {
    course.steps = course.schedule_steps = options.steps;
  } else {
    course.schedule_steps = options.epochs * course.per_epoch;
    course.schedule_shift = course.epoch_shift;
    course.steps = course.schedule_steps - course.epoch_shift;
  }
  return course;
}

}  // namespace brigade::apps
