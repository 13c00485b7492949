// SPDX-License-Identifier: MIT
// apps/report/run_summary.h - the figures of a run, drawn from its files: medians, percentiles, and what each bucket of
// the last plan did. Read before: apps/report/recorded_run.h. Read next: apps/report/advice.h.
#pragma once

#include <string>
#include <vector>

#include "apps/report/recorded_run.h"

namespace brigade::report {

/// All zero without values.
struct Quantiles {
  double p50 = 0, p95 = 0, p99 = 0;
};

/// The value below which share q of `values` lies: the nearest one, no interpolation. Zero without values.
double quantile(std::vector<double> values, double q);
Quantiles quantiles(const std::vector<double>& values);

/// A bucket of the last plan; times are medians over steps, from the step's begin.
struct BucketSummary {
  int bucket = 0;
  std::string label;                    ///< "fc.weight … layer4.1"; empty: no names are known.
  std::vector<std::string> parameters;  ///< Names, as far as known.
  std::int64_t parameter_count = 0, bytes = 0;
  double first_ready_ms = 0, ready_ms = 0, launch_ms = 0, start_ms = 0, end_ms = 0;
  double exposed_ms = 0, waited_ms = 0;
  Quantiles latency;               ///< Of end - start.
  std::vector<double> latency_ms;  ///< One a step.
  int last_rank = -1;              ///< The rank that was ready last most often; -1: unknown.
  double last_share = 0;           ///< In which share of the steps.
  double lag_ms = 0;               ///< Median of how much later than the median rank.
};

struct RunSummary {
  std::int64_t ranks = 1;
  std::string sync;
  std::size_t steps = 0, warm_up = 0;  ///< The first `warm_up` steps are in no figure below.
  Quantiles step_ms;
  double images_per_s = 0;  ///< Median.
  /// Medians; exposed is what hidden leaves of communication, so that the three add up. See has_communication.
  double comm_ms = 0, hidden_ms = 0, exposed_ms = 0;
  double overlap_pct = 0;                                             ///< Hidden share of comm_ms.
  double bus_gb_s = 0;                                                ///< Median.
  bool has_rate = false, has_communication = false, has_bus = false;  ///< Whether the files say so.
  double waited_ms = 0;                ///< Median; computation stood still for so long. Zero if unknown.
  int straggler = -1;                  ///< The rank that was last most often; -1: unknown.
  double straggler_share = 0;          ///< In which share of the steps …
  double straggler_ms = 0;             ///< … and by how much then (median).
  std::vector<double> step_ms_values;  ///< Without the warm-up.
  std::vector<BucketSummary> buckets;
};

/// The first steps allocate, and fill caches: a tenth of the steps, at most five. config.json may say another number,
/// as "warm_up" of "run", where they were left out already.
std::size_t warm_up_steps(std::size_t steps);

RunSummary summarize(const RecordedRun& run);

/// "conv1.weight", or "fc.weight … layer4.1.conv2" for the first and last of several.
std::string bucket_label(const std::vector<std::string>& parameters);

}  // namespace brigade::report
