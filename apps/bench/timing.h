// SPDX-License-Identifier: MIT
// apps/bench/timing.h - what benchmarks measure with: repeated calls, medians and spread, memory; with the load that
// others put on the machine meanwhile (apps/common/load_meter.h). Read next: apps/bench/report.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "apps/common/load_meter.h"
#include "apps/report/run_summary.h"

namespace brigade::apps {

using report::quantile;

/// Median, and the range in which nine of ten values lie.
struct Spread {
  double p5 = 0, p50 = 0, p95 = 0;
};
/// All zero without values.
Spread spread(const std::vector<double>& values);

struct RepeatOptions {
  int warmup = 2;       ///< Calls that are not counted.
  int min_calls = 5;    ///< At least so many …
  double min_ms = 100;  ///< … and for at least so long, …
  int max_calls = 1000;
};
/// Milliseconds of each counted call.
std::vector<double> repeat_ms(const std::function<void()>& call, const RepeatOptions& options = {});

/// Seconds since this process was started by the system, to 10 ms.
double seconds_since_start();

/// Largest resident memory of this process in bytes since its start or the last reset; -1 if the system does not tell.
std::int64_t peak_resident_bytes();
/// Forgets the peak, where the system allows it.
void reset_peak_resident();

}  // namespace brigade::apps
