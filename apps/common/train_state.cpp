// SPDX-License-Identifier: MIT
// apps/common/train_state.cpp - when to save, and what to say. Read next: apps/common/resume.cpp.
#include "apps/common/train_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/common/machine_text.h"
#include "apps/common/run_main.h"
#include "core/fault_point.h"
#include "core/parallel.h"
#include "core/runtime.h"
#include "kernels/cpu/onednn.h"
#include "nn/state_dict.h"

namespace brigade::apps {
namespace {

using Json = nlohmann::ordered_json;

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / dist::kMiB);
}

Json library_versions() {
  const auto mpi = dist::mpi_library();
  return {
      {"compiler", __VERSION__}, {"onednn", onednn::version()}, {"mpi", mpi ? Json(mpi->compiled) : Json()}};
}

}  // namespace

TrainState::TrainState(const TrainOptions& options, const TrainParts& parts, const Course& course,
                       const std::optional<Resumed>& resumed, Clock::time_point begin, RunLog& log)
    : options_(options), parts_(parts), course_(course), log_(log), group_(parts.ddp.group()), begin_(begin) {
  state_.model = nn::state_dict(parts.model);
  for (const nn::NamedBuffer& buffer : parts.model.named_buffers())
    state_.of_rank.emplace_back("buffer." + buffer.name, buffer.tensor);
  for (const auto& [name, tensor] : parts.ddp.hook_state())
    state_.of_rank.emplace_back("hook." + name, tensor);
  if (parts.loss_scale != nullptr)
    for (const auto& entry : parts.loss_scale->state()) state_.of_rank.push_back(entry);
  state_.optimizer = &parts.optimizer;
  state_.ema = parts.ema;
  state_.generator = &default_generator();

  if (resumed) {
    dist::load_checkpoint(resumed->checkpoint, state_, group_.rank(), group_.size());
    best_ = resumed->best;
    saved_step_ = course.first;
    try {
      say_what_differs(*resumed);
    } catch (const Json::exception& error) {
      fail(str(resumed->checkpoint.directory.string(),
               ": the manifest is of another program: ", error.what()));
    }
  }
  if (!resumed && group_.rank() == 0) remove_overwritten(options);
  if (options.checkpoint_folder().empty()) return;
  writer_ = std::make_unique<dist::CheckpointWriter>(
      group_,
      dist::CheckpointWriterOptions{.folder = options.checkpoint_folder(), .keep_last = options.keep_last});
  check_space();
}

TrainState::~TrainState() = default;

// Before the first step rather than after hours.
void TrainState::check_space() const {
  std::string problem;
  if (group_.rank() == 0) {
    const std::int64_t one = dist::checkpoint_bytes(state_, group_.size());
    const std::int64_t room = dist::free_bytes(writer_->folder());
    // The newest is complete before the oldest goes; and there may be a best one.
    const std::int64_t all = one * (options_.keep_last + 2);
    if (room < one)
      problem = str("checkpoint: ", writer_->folder().string(), " has ", mebibytes(room),
                    " free; a checkpoint takes ", mebibytes(one));
    else if (room < all)
      log_.line(fmt::format("note: {} free at {}; {} checkpoints of {} and the best one may take {}",
                            mebibytes(room), writer_->folder().string(), options_.keep_last, mebibytes(one),
                            mebibytes(all)));
  }
  problem = group_.all_gather_text(problem).front();
  BRIGADE_CHECK(problem.empty(), problem);
}

dist::Manifest TrainState::manifest(const Done& done) const {
  const SamplerPosition& p = done.position;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  const Json run{
      {"sampler",
       {{"step", p.step},
        {"epoch", p.epoch},
        {"sample", p.sample},
        {"global_batch", p.global_batch},
        {"accumulate", p.accumulate},
        {"samples", p.samples},
        {"seed", options_.seed}}},
      {"schedule",
       {{"name", options_.schedule},
        {"peak", options_.lr},
        {"step", course_.schedule_index(p.step + 1)},
        {"total_steps", course_.schedule_steps}}},
      {"ema", parts_.ema != nullptr ? Json(options_.ema) : Json()},
      {"data", {{"source", parts_.data.source}, {"labels", data::labels_checksum(parts_.data.train)}}},
      {"seconds", seconds},
      {"best", best_},
      {"evaluation_due", done.evaluation_due},
      {"threads", num_threads()},
      {"processor", processor_text()},
      {"backend", group_.backend()},
      {"device", device_name(group_.device())},
      {"libraries", library_versions()},
      {"command", options_.command},
      {"flags", Json::parse(options_.to_json())}};
  return {.score = done.accuracy,
          .bucket_plan = dist::plan_to_json(parts_.ddp.plan(), parts_.ddp.parameter_infos()),
          .run = run.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

void TrainState::before_step() {
  if (!writer_) return;
  if (writer_->unfinished()) parts_.ddp.propose(dist::Decision::saving);
  // One clock decides.
  if (group_.rank() == 0 && options_.save_seconds > 0 && !asked_ &&
      std::chrono::duration<double>(Clock::now() - last_save_).count() >= options_.save_seconds) {
    parts_.ddp.propose(dist::Decision::save);
    asked_ = true;
  }
}

bool TrainState::due(std::int64_t step) const {
  return (options_.save_every > 0 && step % options_.save_every == 0) || step == course_.steps ||
         parts_.ddp.agreed(dist::Decision::save) || parts_.ddp.agreed(dist::Decision::stop);
}

void TrainState::begin(std::int64_t step) {
  parts_.ddp.settle();
  parts_.optimizer.take_back_skipped();
  if (const auto outcome = writer_->drain()) report(*outcome);
  fault_point(FaultAt::save);
  writer_->begin(step, state_);
  begun_ = step;
  asked_ = false;
  last_save_ = Clock::now();
}

void TrainState::update(std::int64_t step) {
  optim::Optimizer& optimizer = parts_.optimizer;
  if (!writer_ || !due(step)) return optimizer.step();
  if (group_.device() != Device{}) {  // Which says only afterwards whether there was an update to be counted.
    optimizer.step();
    return begin(step);
  }
  begin(step);
  const TimedScope span(SpanKind::optimizer);
  fault_point(FaultAt::optimizer);  // As in Optimizer::step().
  optimizer.begin_step();
  int done = 0;
  for (const dist::BucketSpec& bucket : parts_.ddp.plan().buckets) {
    if (bucket.range.end <= done) continue;  // A part of a parameter, which is updated as a whole.
    optimizer.update({done, bucket.range.end});
    writer_->add({done, bucket.range.end});
    done = bucket.range.end;
  }
}

void TrainState::updated(std::int64_t step) {
  if (writer_ && due(step)) begin(step);
}

void TrainState::after_step(const Done& done) {
  if (!writer_) return;
  const std::int64_t step = done.position.step;
  const bool new_best = done.accuracy && *done.accuracy > best_;
  if (new_best) best_ = *done.accuracy;
  // Before this step some rank was still writing, or none was.
  if (begun_ != step && writer_->awaits_commit() && !parts_.ddp.agreed(dist::Decision::saving))
    writer_->commit();
  if (const auto outcome = writer_->outcome()) report(*outcome);
  if (begun_ != step && !new_best && !done.last) return;
  if (begun_ != step) begin(step);  // Nobody knew it before the update.
  log_.flush();                     // A run that goes on from here finds the lines of all steps before.
  writer_->end(manifest(done));
}

bool TrainState::finish() {
  if (!writer_) return false;
  if (const auto outcome = writer_->drain()) report(*outcome, true);
  return saved_step_ >= 0;
}

void TrainState::report(const dist::SaveOutcome& o, bool last) {
  if (o.error.empty()) {
    saved_step_ = o.step;
    log_.line(fmt::format("checkpoint of step {}: {} in {:.2f} s, {:.1f} ms of it copying", o.step,
                          mebibytes(o.bytes), o.seconds, 1e3 * o.copy_s));
    log_.event(fmt::format(
        R"({{"event": "checkpoint", "step": {}, "bytes": {}, "seconds": {:.3f}, "copy_ms": {:.3f}}})", o.step,
        o.bytes, o.seconds, 1e3 * o.copy_s));
    return;
  }
  const std::string problem = str("checkpoint of step ", o.step, " failed: ", o.error);
  BRIGADE_CHECK(!last && options_.on_save_failure != "stop", problem);
  if (group_.rank() == 0)
    write_at_once(STDERR_FILENO, str("train_resnet18: warning: ", problem, "; training goes on\n"));
}

}  // namespace brigade::apps
