// SPDX-License-Identifier: MIT
// apps/report/recorded_run.h - what the files of a run directory say, checked and typed; nothing is derived here.
// Read before: apps/report/text_files.h. Read next: apps/report/run_summary.h, which draws conclusions.
//
//   config.json        flags, and under "run" what the run turned out to be; the only file that must be there
//   metrics.jsonl      a line a step; evaluations and changes of the plan have lines of their own
//   bucket_plan.json   the plan that was in use last
//   buckets.csv        a line a step and bucket of rank 0, times from the step's begin
//   trace.json.gz      Chrome trace of a few steps of all ranks
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace brigade::report {

/// A step as metrics.jsonl has it. What a file does not say is not a number.
struct StepLine {
  std::int64_t step = 0, epoch = 0, plan_epoch = 0;
  double loss = 0, lr = 0, step_ms = 0, images_per_s = 0;
  double comm_ms = 0, hidden_ms = 0, exposed_ms = 0;
  double waited_ms = 0;  ///< Computation stood still for gradients: exposed, or late ranks.
  double bus_gb_s = 0;
  std::int64_t straggler = -1;  ///< The rank that was last; -1: unknown.
  double straggler_ms = 0;      ///< By how much.
};

struct Evaluation {
  std::int64_t epoch = 0, step = 0;  ///< The step it came after; 0: before any.
  double loss = 0, accuracy = 0;     ///< Accuracy from 0 to 1.
};

struct PlanChange {
  std::int64_t step = 0, plan_epoch = 0;
  std::string text;
};

/// A line of buckets.csv; times in microseconds from the step's begin.
struct BucketLine {
  std::int64_t step = 0, plan_epoch = 0;
  int bucket = 0;
  std::int64_t bytes = 0, parameters = 0;
  double first_ready_us = 0, last_ready_us = 0, launch_us = 0, start_us = 0, end_us = 0;
  double waited_us = 0, exposed_us = 0;
  int last_rank = -1;  ///< Whose gradients were ready last; -1: unknown.
  double lag_us = 0;   ///< By how much after the median rank.
};

/// A bucket of bucket_plan.json.
struct PlanBucket {
  std::int64_t bytes = 0;
  std::vector<std::string> parameters;
};

enum class SpanKind { forward, backward, optimizer, data, other };
const char* name(SpanKind kind);

/// Something a rank computed; microseconds from the step's begin.
struct ComputeSpan {
  std::string name;
  SpanKind kind = SpanKind::other;
  double begin_us = 0, end_us = 0;
  int depth = 0;  ///< Number of spans around it.
};

/// A bucket of one rank in one step; microseconds from the step's begin.
struct BucketSpan {
  int bucket = 0;
  std::int64_t bytes = 0;
  double first_ready_us = 0, last_ready_us = 0, launch_us = 0, start_us = 0, end_us = 0;
};

struct RankTimeline {
  int rank = 0;
  std::vector<ComputeSpan> spans;   ///< By begin.
  std::vector<BucketSpan> buckets;  ///< By start.
};

/// One step on one clock: 0 is where the first rank began it.
struct Timeline {
  std::int64_t step = 0;
  double length_us = 0;
  std::vector<RankTimeline> ranks;
};

struct RecordedRun {
  std::filesystem::path directory;
  nlohmann::json config;
  std::string plan_rule;
  std::vector<PlanBucket> plan;
  std::vector<StepLine> steps;
  std::vector<Evaluation> evaluations;
  std::vector<PlanChange> plan_changes;
  std::vector<BucketLine> buckets;
  std::vector<Timeline> timelines;
  std::vector<std::string>
      notes;  ///< What is missing or was left out, in sentences for the reader of the page.
};

/// Reads a run directory. Of the files only config.json must exist; a last line without end is left out, with a note.
/// Error naming file, line and rule for anything that is no file of a run.
RecordedRun read_run(const std::filesystem::path& directory);

// The parts of read_run(), each for one file that exists.
void read_metrics(const std::filesystem::path& file, RecordedRun& run);
void read_buckets(const std::filesystem::path& file, RecordedRun& run);
void read_plan(const std::filesystem::path& file, RecordedRun& run);
void read_trace(const std::filesystem::path& file, RecordedRun& run);

}  // namespace brigade::report
