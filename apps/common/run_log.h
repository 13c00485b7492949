// SPDX-License-Identifier: MIT
// apps/common/run_log.h - what a run tells people (stdout) and programs (--out DIR). Rank 0
// speaks; the others are silent.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "apps/common/train_options.h"
#include "dist/ddp.h"

namespace brigade::apps {

struct StepReport {
  std::int64_t step = 0;   ///< From 1.
  std::int64_t steps = 0;  ///< Of the whole run.
  std::int64_t epoch = 0;  ///< From 0.
  double loss = 0;         ///< Mean over ranks and micro-steps.
  double lr = 0;
  double step_ms = 0;
  std::int64_t images = 0;  ///< Of all ranks.
};

struct EvaluationReport {
  std::int64_t epoch = 0;
  std::int64_t images = 0, correct = 0;
  double loss = 0;
  double seconds = 0;  ///< That the evaluation took.
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(images); }
};

/// What a run turned out to be, once ranks and data are known.
struct RunFacts {
  std::string data;  ///< Where the images come from.
  std::int64_t parameters = 0;
  int threads = 1;  ///< Compute threads per rank.
  std::int64_t steps = 0;
  std::int64_t global_batch = 0;  ///< Images of all ranks per optimizer step.
};

class RunLog {
 public:
  /// Rank 0 creates the directory and sees that --save will find a place when training is over. Throws Error naming
  /// the path if not. `options` must outlive the log.
  /// `begin` is when the program started, from which --target-accuracy counts.
  RunLog(const TrainOptions& options, int rank, Clock::time_point begin);

  /// The banner, config.json and the bucket plan (bucket_plan.json; with --print-plan on the screen as well).
  void start(const RunFacts& facts, const dist::Ddp& ddp);

  /// A line for people, on rank 0.
  void line(const std::string& text);
  /// bucket_plan.json, the file of --save-plan and the table of --print-plan anew: the planner may have changed
  /// the plan.
  void plan(const dist::Ddp& ddp);
  /// A line of metrics.jsonl and, unless quiet, one on the screen.
  void step(const StepReport& report, const dist::StepRecord& sync);
  /// Returns whether --target-accuracy is reached, on every rank; then the log has said so.
  [[nodiscard]] bool evaluation(const EvaluationReport& report);

 private:
  void open();
  void target(const EvaluationReport& report);
  void write(const std::filesystem::path& path, const std::string& text, const char* flag);

  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const TrainOptions& options_;
  bool speaks_;
  Clock::time_point begin_;
  std::filesystem::path directory_;
  std::string printed_plan_;
  std::unique_ptr<std::FILE, CloseFile> metrics_;
};

}  // namespace brigade::apps
