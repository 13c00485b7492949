// SPDX-License-Identifier: MIT
// apps/telemetry/step_lines.h - a step as a line of metrics.jsonl and as lines of buckets.csv. Pure functions.
// Read before: dist/ledger_gather.h, apps/telemetry/reports.h. Read next: apps/telemetry/run_files.h.
#pragma once

#include <string>

#include "apps/telemetry/reports.h"
#include "dist/ledger_gather.h"

namespace brigade::telemetry {

/// JSON has no infinity and no NaN; a step that was skipped, and a model that is lost, have such a loss: "null".
std::string json_number(double x);

/// `gathered`: what all ranks recorded of that step; nullptr if it never arrived: then nobody knows the straggler.
/// `t_s`: seconds since the program began. With the end of the line.
std::string metrics_line(const apps::StepReport& report, double t_s, const dist::StepRecord& mine, int ranks,
                         const dist::GatheredStep* gathered);
std::string evaluation_line(const apps::EvaluationReport& report);

/// Header of buckets.csv; and a line a bucket, times in microseconds from the begin of the step on rank 0.
extern const char* const kBucketsHeader;
std::string bucket_lines(std::int64_t step, const dist::StepRecord& mine, const dist::GatheredStep* gathered);

/// Which steps get lines in buckets.csv, decided before a run so that config.json can say it: all until there are
/// kFullLines lines, then every `every`-th, such that a run of `steps` steps stays near kThinnedLines lines.
struct Thinning {
  static constexpr std::int64_t kFullLines = 2000, kThinnedLines = 20'000;
  std::int64_t every = 1;
  bool takes(std::int64_t step, std::int64_t lines_so_far) const {
    return lines_so_far < kFullLines || step % every == 0;
  }
};
Thinning thinning(std::int64_t steps, std::size_t buckets);

}  // namespace brigade::telemetry
