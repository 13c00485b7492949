// SPDX-License-Identifier: MIT
// apps/telemetry/step_lines.cpp - see the header.
#include "apps/telemetry/step_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace brigade::telemetry {
namespace {

double micros(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

}  // namespace

std::string json_number(double x) { return std::isfinite(x) ? fmt::format("{:.9g}", x) : "null"; }

std::string metrics_line(const apps::StepReport& r, double t_s, const dist::StepRecord& mine, int ranks,
                         const dist::GatheredStep* gathered) {
  const double comm = dist::milliseconds(mine.communication()), hidden = dist::milliseconds(mine.hidden());
  std::string late = "null", lag = "null";
  if (gathered != nullptr) {
    const dist::Straggler last = gathered->straggler();
    late = std::to_string(last.rank);
    lag = fmt::format("{:.3f}", dist::milliseconds(last.lag));
  }
  std::string line = fmt::format(
      R"({{"step": {}, "epoch": {}, "loss": {}, "lr": {:.6g}, "step_ms": {:.3f}, "images_per_s": {:.2f}, )"
      R"("comm_ms": {:.3f}, "hidden_ms": {:.3f}, "exposed_ms": {:.3f}, "overlap_pct": {:.1f}, )"
      R"("t_s": {:.3f}, "plan_epoch": {}, "bus_gb_s": {:.4g}, "waited_ms": {:.3f}, "straggler": {}, )"
      R"("straggler_ms": {})",
      r.step, r.epoch, json_number(r.loss), r.lr, r.step_ms, r.images_per_s(), comm, hidden, comm - hidden,
      100 * mine.overlap(), t_s, mine.plan_epoch, mine.bus_bandwidth(ranks) / 1e9,
      dist::milliseconds(mine.waited()), late, lag);
  if (r.grad_norm) line += fmt::format(R"(, "grad_norm": {})", json_number(*r.grad_norm));
  return line + "}\n";
}

// No time in it: runs that compute the same have the same lines.
std::string evaluation_line(const apps::EvaluationReport& r) {
  return fmt::format(
      R"({{"event": "evaluation", "step": {}, "epoch": {}, "test_loss": {}, "test_accuracy": {:.9g}}})"
      "\n",
      r.step, r.epoch, json_number(r.loss), r.accuracy());
}

const char* const kBucketsHeader =
    "step,plan_epoch,bucket,bytes,parameters,first_ready_us,last_ready_us,launch_us,start_us,end_us,waited_"
    "us,"
    "exposed_us,last_rank,lag_us\n";

std::string bucket_lines(std::int64_t step, const dist::StepRecord& mine,
                         const dist::GatheredStep* gathered) {
  const Clock::time_point origin = mine.whole.begin < mine.whole.end ? mine.whole.begin : mine.backward.begin;
  std::string out;
  for (std::size_t i = 0; i < mine.buckets.size(); ++i) {
    const dist::BucketRecord& b = mine.buckets[i];
    fmt::format_to(std::back_inserter(out),
                   "{},{},{},{},{},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},{:.1f},", step, mine.plan_epoch,
                   b.bucket, b.bytes, b.parameters, micros(b.first_ready - origin),
                   micros(b.last_ready - origin), micros(b.launch - origin), micros(b.start - origin),
                   micros(b.end - origin), micros(b.waited), micros(mine.exposed(b)));
    if (gathered == nullptr) {
      out += "-1,0.0\n";  // Nobody knows.
      continue;
    }
    const dist::Straggler last = gathered->straggler(i);
    fmt::format_to(std::back_inserter(out), "{},{:.1f}\n", last.rank, micros(last.lag));
  }
  return out;
}

Thinning thinning(std::int64_t steps, std::size_t buckets) {
  const auto per_step = static_cast<std::int64_t>(std::max<std::size_t>(buckets, 1));
  const std::int64_t lines = steps * per_step;
  if (lines <= Thinning::kFullLines) return {};
  return {std::max<std::int64_t>(1, (lines - Thinning::kFullLines) / Thinning::kThinnedLines + 1)};
}

}  // namespace brigade::telemetry
