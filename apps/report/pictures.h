// SPDX-License-Identifier: MIT
// apps/report/pictures.h - two pictures of a run as SVG, for documents and web pages: what the page shows, at rest.
// Read before: apps/report/run_summary.h.
#pragma once

#include <string>

#include "apps/report/recorded_run.h"
#include "apps/report/run_summary.h"

namespace brigade::report {

/// The ranks of one step below each other, of each computation above communication; what is exposed is framed in red.
/// At most 16 ranks, the first ones, which the picture then says.
std::string timeline_svg(const Timeline& timeline, const std::string& title);

/// How long steps took: a histogram with p50, p95 and p99. `run` has at least one step.
std::string step_time_svg(const RunSummary& run, const std::string& title);

/// Begin and end of the backward pass of a rank; both zero if it has none.
struct Backward {
  double begin_us = 0, end_us = 0;
};
Backward backward_of(const RankTimeline& rank);

/// Distance of the ticks of an axis of `length`: 1, 2 or 5 times a power of ten, at most `ticks` of them.
double tick_step(double length, int ticks);

}  // namespace brigade::report
