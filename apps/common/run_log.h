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
  double seconds = 0;
};

class RunLog {
 public:
  /// Rank 0 creates the directory and writes config.json, and sees that --save will find a place when training
  /// is over. Throws Error naming the path if not.
  RunLog(const TrainOptions& options, int rank);

  /// A line for people, on rank 0.
  void line(const std::string& text);
  /// The bucket plan: bucket_plan.json in the directory, and on the screen with --print-plan.
  void plan(const dist::Ddp& ddp);
  /// A line of metrics.jsonl and, unless quiet, one on the screen.
  void step(const StepReport& report, const dist::StepRecord& sync);
  void evaluation(const EvaluationReport& report);

 private:
  void open(const TrainOptions& options);
  void write(const std::string& name, const std::string& text);

  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  bool speaks_, per_step_, print_plan_;
  std::filesystem::path directory_;
  std::unique_ptr<std::FILE, CloseFile> metrics_;
};

}  // namespace brigade::apps
