// SPDX-License-Identifier: MIT
// apps/telemetry/chrome_trace.h - steps of all ranks as a file for chrome://tracing and ui.perfetto.dev ("Trace Event
// Format", Google): a process a rank with two tracks, computation over communication, all on rank 0's clock.
//
//   compute        step > forward > layer1 > layer1.0 > layer1.0.conv1 …
//   communication  a span a bucket; an arrow leads to it from its last gradient and from its launch
//
// Read before: dist/ledger_gather.h. Read next: apps/telemetry/run_files.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/ledger_gather.h"

namespace brigade::telemetry {

/// Names of buckets, by bucket: "bucket 2 (layer4.1.conv2.weight + 5 more)". Shared by the steps of a plan.
using BucketLabels = std::shared_ptr<const std::vector<std::string>>;

struct TraceStep {
  std::int64_t number = 0;  ///< As people count, from 1.
  dist::GatheredStep step;
  BucketLabels labels;
};

struct TraceOptions {
  Clock::time_point origin{};                     ///< Time 0 of the trace.
  std::vector<dist::ClockOffset> clocks = {};     ///< By rank, for a note on how exact the clocks are.
  std::size_t max_bytes = std::size_t{64} << 20;  ///< Whole steps beyond are left out, which the file says.
};

/// The JSON. `timeline` names the layers.
std::string chrome_trace(const std::vector<TraceStep>& steps, const Timeline& timeline,
                         const TraceOptions& options);

}  // namespace brigade::telemetry
