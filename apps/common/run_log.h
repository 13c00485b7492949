// SPDX-License-Identifier: MIT
// apps/common/run_log.h - what a run tells people (stdout) and, with --out DIR, programs (apps/telemetry/run_files.h).
// Rank 0 speaks; the others only bring it their ledgers. Read before: apps/telemetry/recorder.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/common/course.h"
#include "apps/common/terminal.h"
#include "apps/common/train_options.h"
#include "apps/telemetry/recorder.h"
#include "dist/ddp.h"

namespace brigade::apps {

/// What a run turned out to be, once ranks and data are known.
struct RunFacts {
  std::string data;  ///< Where the images come from.
  std::int64_t parameters = 0;
  int threads = 1;  ///< Compute threads per rank.
  Course course;
};

/// Before anything takes time: rank 0 creates the directory of --out, which must not hold a run yet (--overwrite), and
/// sees that --save and --save-plan will find a place when training is over. A run that goes on behind `resumed_step`
/// keeps the lines up to it that it finds in --out. Throws Error naming the path if not.
/// nullptr without --out and on other ranks. `begin`: when the program started.
std::unique_ptr<telemetry::RunFiles> open_run_files(const TrainOptions& options, int rank,
                                                    Clock::time_point begin,
                                                    std::optional<std::int64_t> resumed_step = {});

/// All ranks make the same calls in the same order.
class RunLog {
 public:
  /// The banner, config.json and the bucket plan (bucket_plan.json; with --print-plan on the screen as well).
  /// Collective; blocks. `options`, `ddp` and `files` must outlive the log. `begin` is when the program started, from
  /// which --target-accuracy counts.
  RunLog(const TrainOptions& options, const RunFacts& facts, dist::Ddp& ddp, telemetry::RunFiles* files,
         Clock::time_point begin);

  /// A line for people, on rank 0.
  void line(const std::string& text);
  /// All is known of a step, some steps later on a device: its line in the files and, unless quiet, on the screen;
  /// and, where an epoch ends, a line about that.
  void step(const StepReport& report);
  /// Each step, when it is over, behind step() if that comes at once: the planner's word if it has changed its mind.
  void step_over();
  /// Returns whether --target-accuracy is reached, on every rank; then the log has said so. Collective; blocks.
  [[nodiscard]] bool evaluation(const EvaluationReport& report);
  /// All ranks have dropped `step`, as something was not finite. `loss_scale`: what it is now, if losses are scaled.
  void skipped(std::int64_t step, const std::string& reason, std::optional<double> loss_scale);
  /// A line of metrics.jsonl, a whole JSON object.
  void event(const std::string& json);
  /// Lines of all steps that step() was told of are in the files. Collective; blocks.
  void flush() {
    if (before_flush_) before_flush_();
    recorder_.flush();
  }
  /// For who tells of steps later: flush() calls this first.
  void before_flush(std::function<void()> tell_all) { before_flush_ = std::move(tell_all); }
  /// SIGINT or SIGTERM ends the run behind `step`; finish() comes next. `saved`: there is a checkpoint of it.
  void interrupted(std::int64_t step, int signal, bool saved);
  /// Everything is in the files; the last words. Collective; blocks.
  void finish(const std::string& parameters_sha256);

 private:
  /// Sums over steps, of an epoch and of the run.
  struct Totals {
    std::int64_t steps = 0, images = 0, losses = 0;  // Losses: finite ones.
    std::int64_t measured = 0;                       // Steps whose communication is known.
    double loss = 0, step_ms = 0, comm_ms = 0, hidden_ms = 0;
    void add(const StepReport& report, const dist::StepRecord& sync);
  };
  /// "118.6 images/s; comm 12.3 ms a step, 87 % hidden, 1.6 ms exposed"; of one rank only the first.
  std::string speed_text(const Totals& totals) const;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void banner(const RunFacts& facts) const;
  void say_device() const;
  void config(const RunFacts& facts);
  /// bucket_plan.json, the file of --save-plan and the table of --print-plan anew: the planner may have changed it.
  void plan();
  void plan_change();
  void status(const StepReport& report, const dist::StepRecord& sync);
  double left_s(const StepReport& report) const;
  void target(const EvaluationReport& report);
  /// Writes profile.json, for bin/whatif.
  void profile();
  /// Writes report.html; returns what it advises.
  std::string report();

  const TrainOptions& options_;
  dist::Ddp& ddp_;
  telemetry::RunFiles* files_;
  Clock::time_point begin_;
  bool speaks_;
  bool travels_;  // Whether anything does: there are several ranks.
  Course course_;
  telemetry::Recorder recorder_;
  mutable Terminal terminal_;
  std::string printed_plan_;
  std::function<void()> before_flush_;
  Totals run_, epoch_;
  double smooth_ms_ = 0,
         evaluation_s_ = 0;  // Of a step and of the last evaluation, for the time that is left.
  std::optional<double> accuracy_;
};

}  // namespace brigade::apps
