// SPDX-License-Identifier: MIT
// apps/common/train_state.h - a run's checkpoints: when they are saved, what is said about it, and how a run goes on
// from one. Read before: dist/checkpoint/checkpoint_writer.h, apps/common/course.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/common/course.h"
#include "apps/common/run_log.h"
#include "data/dataset.h"
#include "dist/checkpoint/checkpoint_writer.h"
#include "nn/module.h"
#include "nn/optim/loss_scale.h"

namespace brigade::apps {

/// The checkpoint that a run goes on from.
struct Resumed {
  dist::Checkpoint checkpoint;
  SamplerPosition position;
  double seconds = 0;           ///< That the run had taken.
  double best = -1;             ///< Its best test accuracy so far.
  bool evaluation_due = false;  ///< A signal ended the run before the evaluation of this step.
  std::string flags;            ///< JSON: TrainOptions::to_json() of the run that saved.
  Clock::duration before() const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  /// Its bucket plan, in JSON, if it fits; else empty.
  std::string plan_for(const TrainOptions& options, int size) const;
  /// Throws Error naming the flag by which its tensors are others than this run's.
  void check_state_fits(const TrainOptions& options, int size) const;
};

/// What --resume names, the same on all ranks; nothing if the run begins. Rank 0 looks, prints why checkpoints were
/// skipped, and removes what killed runs have left. Collective; blocks. Throws Error, on all ranks, where there is
/// nothing to go on from though DIR was given, or where a run that begins would overwrite checkpoints.
std::optional<Resumed> find_resumed(const TrainOptions& options, dist::ProcessGroup& group);

/// With --overwrite: checkpoints of an earlier run, in --checkpoint-dir or --out. Of rank 0, when nothing can be wrong
/// with the run any more. Throws Error.
void remove_overwritten(const TrainOptions& options);

/// Up to which step the files of --out belong to this run: nothing where they are another's, or there are none.
std::optional<std::int64_t> lines_to_keep(const TrainOptions& options, const std::optional<Resumed>& resumed);

/// On rank 0, if no step is left to do.
void say_if_over(const Course& course, int rank);

/// What the parts of a run are called here. All must outlive the TrainState.
struct TrainParts {
  nn::Module& model;
  dist::Ddp& ddp;
  optim::Optimizer& optimizer;
  optim::Ema* ema;               ///< nullptr: none.
  optim::LossScale* loss_scale;  ///< nullptr: none.
  const data::Split& data;
};

/// Loads what the run goes on from, and saves from then on. All ranks make the same calls in the same order.
class TrainState {
 public:
  /// Collective; blocks. Throws Error where the checkpoint does not fit the run (nothing is changed then), where
  /// checkpoints cannot be written, and where there is no room for one.
  TrainState(const TrainOptions& options, const TrainParts& parts, const Course& course,
             const std::optional<Resumed>& resumed, Clock::time_point begin, RunLog& log);
  ~TrainState();

  /// Before a step's first forward.
  void before_step();
  /// In place of optimizer.step(): behind `step` a checkpoint may be due, then buckets are copied as they are updated.
  void update(std::int64_t step);
  /// For a step whose optimizer.step() has been called by others: a checkpoint may be due behind it.
  void updated(std::int64_t step);
  /// A step and its evaluation are over.
  struct Done {
    SamplerPosition position;        ///< Where the samples stand.
    std::optional<double> accuracy;  ///< Of the evaluation, if there was one…
    bool evaluation_due = false;     ///< … or whether there should have been one.
    bool last = false;               ///< The run ends here.
  };
  void after_step(const Done& done);
  /// The run ends behind the last step: its checkpoint is complete when this returns. Collective; blocks. Throws Error
  /// if it could not be written. Returns whether there is one.
  bool finish();

 private:
  dist::Manifest manifest(const Done& done) const;
  void check_space() const;
  void say_what_differs(const Resumed& resumed) const;
  void report(const dist::SaveOutcome& outcome, bool last = false);
  bool due(std::int64_t step) const;
  void begin(std::int64_t step);

  const TrainOptions& options_;
  TrainParts parts_;
  const Course& course_;
  RunLog& log_;
  dist::ProcessGroup& group_;
  dist::TrainingState state_;
  Clock::time_point begin_, last_save_ = Clock::now();
  double best_ = -1;
  std::int64_t saved_step_ = -1, begun_ = -1;  // The step whose state is, or is being, saved.
  bool asked_ = false;
  std::unique_ptr<dist::CheckpointWriter> writer_;  // nullptr: nothing is saved.
};

}  // namespace brigade::apps
