// SPDX-License-Identifier: MIT
// apps/report/run_summary.cpp - see the header.
#include "apps/report/run_summary.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/report/text_files.h"
#include "core/check.h"

namespace brigade::report {
namespace {

double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// The values of `field` that the files have.
std::vector<double> values_of(const std::vector<StepLine>& steps, std::size_t from, double StepLine::*field) {
  std::vector<double> out;
  for (std::size_t i = from; i < steps.size(); ++i)
    if (std::isfinite(steps[i].*field)) out.push_back(steps[i].*field);
  return out;
}

double median_ms(const std::vector<const BucketLine*>& lines, double BucketLine::*field) {
  std::vector<double> out;
  for (const BucketLine* line : lines) out.push_back(1e-3 * (line->*field));
  return median(out);
}

// Who was last most often, in which share of all, and by how much then (median). `lags` by rank.
struct Last {
  int rank = -1;
  double share = 0, lag_ms = 0;
};
Last last_of(const std::map<int, std::vector<double>>& lags, std::size_t all) {
  const auto most = std::max_element(lags.begin(), lags.end(), [](const auto& x, const auto& y) {
    return x.second.size() < y.second.size();
  });
  if (most == lags.end()) return {};
  return {most->first, static_cast<double>(most->second.size()) / static_cast<double>(all),
          median(most->second)};
}

void add_last_rank(const std::vector<const BucketLine*>& lines, BucketSummary& b) {
  std::map<int, std::vector<double>> lags;
  for (const BucketLine* line : lines)
    if (line->last_rank >= 0) lags[line->last_rank].push_back(1e-3 * line->lag_us);
  const Last last = last_of(lags, lines.size());
  b.last_rank = last.rank;
  b.last_share = last.share;
  b.lag_ms = last.lag_ms;
}

void add_straggler(const std::vector<StepLine>& steps, RunSummary& s) {
  std::map<int, std::vector<double>> lags;
  for (std::size_t i = s.warm_up; i < steps.size(); ++i)
    if (steps[i].straggler >= 0 && std::isfinite(steps[i].straggler_ms))
      lags[static_cast<int>(steps[i].straggler)].push_back(steps[i].straggler_ms);
  const Last last = last_of(lags, steps.size() - s.warm_up);
  s.straggler = last.rank;
  s.straggler_share = last.share;
  s.straggler_ms = last.lag_ms;
}

std::vector<BucketSummary> summarize_buckets(const RecordedRun& run, std::int64_t first_counted) {
  std::int64_t epoch = 0;
  for (const BucketLine& line : run.buckets) epoch = std::max(epoch, line.plan_epoch);
  std::map<int, std::vector<const BucketLine*>> by_bucket, early;
  for (const BucketLine& line : run.buckets) {
    if (line.plan_epoch != epoch) continue;
    (line.step >= first_counted ? by_bucket : early)[line.bucket].push_back(&line);
  }
  if (by_bucket.empty()) by_bucket = std::move(early);  // A plan of the warm-up only is better than none.

  std::vector<BucketSummary> out;
  for (const auto& [index, lines] : by_bucket) {
    BucketSummary b;
    b.bucket = index;
    b.bytes = lines.back()->bytes;
    b.parameter_count = lines.back()->parameters;
    b.first_ready_ms = median_ms(lines, &BucketLine::first_ready_us);
    b.ready_ms = median_ms(lines, &BucketLine::last_ready_us);
    b.launch_ms = median_ms(lines, &BucketLine::launch_us);
    b.start_ms = median_ms(lines, &BucketLine::start_us);
    b.end_ms = median_ms(lines, &BucketLine::end_us);
    b.exposed_ms = median_ms(lines, &BucketLine::exposed_us);
    b.waited_ms = median_ms(lines, &BucketLine::waited_us);
    for (const BucketLine* line : lines) b.latency_ms.push_back(1e-3 * (line->end_us - line->start_us));
    b.latency = quantiles(b.latency_ms);
    add_last_rank(lines, b);
    out.push_back(std::move(b));
  }
  // The plan file is the last plan; where the lines are of another one (a run killed between the two), no name fits.
  const auto fits = [&](const BucketSummary& b) {
    return static_cast<std::size_t>(b.bucket) < run.plan.size() &&
           run.plan[static_cast<std::size_t>(b.bucket)].bytes == b.bytes;
  };
  if (std::all_of(out.begin(), out.end(), fits)) {
    for (BucketSummary& b : out) {
      b.parameters = run.plan[static_cast<std::size_t>(b.bucket)].parameters;
      b.label = bucket_label(b.parameters);
    }
  }
  return out;
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

Quantiles quantiles(const std::vector<double>& values) {
  return {quantile(values, 0.5), quantile(values, 0.95), quantile(values, 0.99)};
}

std::size_t warm_up_steps(std::size_t steps) { return std::min<std::size_t>(5, steps / 10); }

std::string bucket_label(const std::vector<std::string>& parameters) {
  if (parameters.empty()) return "";
  if (parameters.size() == 1) return parameters.front();
  // Layers say enough: "layer1.0.conv1", without ".weight".
  const auto layer = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  const std::string first = layer(parameters.front()), last = layer(parameters.back());
  return first == last ? first : first + " … " + last;
}

RunSummary summarize(const RecordedRun& run) {
  RunSummary s;
  const std::string where = (run.directory / "config.json").string();
  const Members flags(run.config, where);
  s.sync = flags.text("sync");
  const auto found = run.config.find("run");
  const nlohmann::json none = nlohmann::json::object();
  const Members facts(found != run.config.end() && found->is_object() ? *found : none, where + ": run");
  s.ranks = facts.whole("ranks", 1);

  s.steps = run.steps.size();
  s.warm_up = std::min(s.steps, static_cast<std::size_t>(facts.whole("warm_up", warm_up_steps(s.steps))));
  s.step_ms_values = values_of(run.steps, s.warm_up, &StepLine::step_ms);
  s.step_ms = quantiles(s.step_ms_values);
  const std::vector<double> rate = values_of(run.steps, s.warm_up, &StepLine::images_per_s);
  const std::vector<double> comm = values_of(run.steps, s.warm_up, &StepLine::comm_ms);
  const std::vector<double> hidden = values_of(run.steps, s.warm_up, &StepLine::hidden_ms);
  const std::vector<double> bus = values_of(run.steps, s.warm_up, &StepLine::bus_gb_s);
  s.has_rate = !rate.empty();
  s.has_communication = !comm.empty() && !hidden.empty();
  s.has_bus = !bus.empty();
  s.images_per_s = median(rate);
  s.comm_ms = median(comm);
  s.hidden_ms = median(hidden);
  s.exposed_ms = s.comm_ms - s.hidden_ms;
  s.bus_gb_s = median(bus);
  s.waited_ms = median(values_of(run.steps, s.warm_up, &StepLine::waited_ms));
  add_straggler(run.steps, s);
  s.overlap_pct = s.comm_ms > 0 ? 100 * s.hidden_ms / s.comm_ms : 0;
  s.buckets = summarize_buckets(run, s.steps > s.warm_up ? run.steps[s.warm_up].step : 0);
  return s;
}

}  // namespace brigade::report
