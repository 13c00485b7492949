// SPDX-License-Identifier: MIT
// apps/telemetry/ddp_logging.cpp - see the header.
#include "apps/telemetry/ddp_logging.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/telemetry/run_files.h"

namespace brigade::telemetry {
namespace {

using dist::StepRecord;
using Nanoseconds = std::chrono::duration<double, std::nano>;

// PyTorch counts communication from the first bucket's start to the last one's end, gaps included, and calls "overlap"
// how long backward went on behind the first start.
struct Times {
  double compute = 0, comm = 0, overlap = 0;
};
Times times_of(const StepRecord& step) {
  const auto ns = [](Clock::duration d) { return std::max(0.0, Nanoseconds(d).count()); };
  Times times{.compute = ns(step.backward.end - step.backward.begin)};
  if (step.buckets.empty()) return times;
  auto first = step.buckets.front().start, last = step.buckets.front().end;
  for (const dist::BucketRecord& bucket : step.buckets) {
    first = std::min(first, bucket.start);
    last = std::max(last, bucket.end);
  }
  times.comm = ns(last - first);
  times.overlap = ns(step.backward.end - first);
  return times;
}

// A step that keeps its spans only.
std::optional<double> forward_of(const StepRecord& step) {
  for (const TimedSpan& span : step.spans)
    if (span.kind == SpanKind::forward && span.depth == 0) return Nanoseconds(span.end - span.begin).count();
  return std::nullopt;
}

}  // namespace

std::string ddp_logging_json(const dist::Ddp& ddp, const std::string& model) {
  const dist::Ledger& ledger = ddp.ledger();
  std::int64_t bytes = 0;
  for (const dist::ParameterInfo& parameter : ddp.parameter_infos()) bytes += parameter.bytes;
  std::string sizes;
  for (const dist::BucketSpec& bucket : ddp.plan().buckets)
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(bucket.bytes);
  nlohmann::ordered_json out{{"module_name", model},
                             {"backend_name", std::string(ddp.group().backend())},
                             {"world_size", ddp.group().size()},
                             {"rank", ddp.group().rank()},
                             {"iteration", ledger.steps_recorded()},
                             {"num_parameter_tensors", ddp.parameter_infos().size()},
                             {"total_parameter_size_bytes", bytes},
                             {"bucket_sizes", sizes}};
  if (ledger.steps().empty()) return out.dump(1) + "\n";
  const auto put = [&](const std::string& prefix, const Times& times) {
    out[prefix + "backward_compute_time"] = std::llround(times.compute);
    out[prefix + "backward_comm_time"] = std::llround(times.comm);
    out[prefix + "backward_compute_comm_overlap_time"] = std::llround(times.overlap);
  };
  put("", times_of(ledger.steps().back()));
  if (const auto forward = forward_of(ledger.steps().back()))
    out["forward_compute_time"] = std::llround(*forward);
  Times mean;
  const double share = 1.0 / static_cast<double>(ledger.steps().size());
  for (const StepRecord& step : ledger.steps()) {
    const Times times = times_of(step);
    mean.compute += share * times.compute;
    mean.comm += share * times.comm;
    mean.overlap += share * times.overlap;
  }
  put("avg_", mean);
  return out.dump(1) + "\n";
}

void write_ddp_logging(const std::filesystem::path& directory, const dist::Ddp& ddp,
                       const std::string& model) {
  write_whole(directory / "ddp_logging.json", ddp_logging_json(ddp, model), "--out");
}

}  // namespace brigade::telemetry
