// SPDX-License-Identifier: MIT
// dist/step_profile.cpp - medians of what a ledger has. Read next: dist/what_if.cpp.
#include "dist/step_profile.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace brigade::dist {
namespace {

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// 0 without values; of an even number the upper of the two in the middle.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using Steps = std::vector<const StepRecord*>;

double median_of(const Steps& steps, const std::function<double(const StepRecord&)>& value) {
  std::vector<double> values;
  for (const StepRecord* step : steps) values.push_back(value(*step));
  return median(std::move(values));
}

// By the median absolute deviation, 0.6745 of a normal distribution's standard deviation: one step that something
// interrupted must not pass for a habit.
double relative_deviation(const Steps& steps, const std::function<double(const StepRecord&)>& value) {
  const double middle = median_of(steps, value);
  if (middle <= 0) return 0;
  return median_of(steps, [&](const StepRecord& s) { return std::abs(value(s) - middle); }) /
         (0.6745 * middle);
}

Steps usable_steps(const Ledger& ledger, const BucketPlan& plan) {
  Steps steps;
  for (const StepRecord& step : ledger.steps()) {
    if (step.plan_epoch != ledger.last().plan_epoch || step.buckets.size() != plan.buckets.size()) continue;
    if (step.whole.end > step.whole.begin) steps.push_back(&step);
  }
  steps.erase(steps.begin(),
              steps.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(2, steps.size() / 2)));
  return steps;
}

double before(const StepRecord& step) { return seconds(step.backward.begin - step.whole.begin); }
double backward(const StepRecord& step) { return seconds(step.backward.end - step.backward.begin); }

// What follows the last bucket. Of several ranks only the optimizer, if its spans were kept: they also wait for each
// other there.
double median_after(const Steps& steps, int ranks) {
  std::vector<double> spans, rest;
  for (const StepRecord* step : steps) {
    Clock::duration optimizer{};
    for (const TimedSpan& span : step->spans)
      if (span.kind == SpanKind::optimizer && span.depth == 0) optimizer += span.end - span.begin;
    if (optimizer > Clock::duration{}) spans.push_back(seconds(optimizer));
    Clock::time_point done = step->backward.end;
    for (const BucketRecord& bucket : step->buckets) done = std::max(done, bucket.end);
    rest.push_back(seconds(step->whole.end - done));
  }
  return median(ranks > 1 && !spans.empty() ? std::move(spans) : std::move(rest));
}

// Between buckets that only waited for the wire, so that no gradient and no late rank is in it. Where the wire was
// always faster, the shortest gap to the gradient or the bucket before.
double gap(const Steps& steps) {
  std::vector<double> waiting, others;
  for (const StepRecord* step : steps)
    for (std::size_t i = 1; i < step->buckets.size(); ++i) {
      const BucketRecord &before = step->buckets[i - 1], &next = step->buckets[i];
      const bool waited = next.last_ready <= before.end;
      (waited ? waiting : others).push_back(seconds(next.start - std::max(before.end, next.last_ready)));
    }
  if (!waiting.empty()) return std::max(0.0, median(std::move(waiting)));
  return others.empty() ? 0 : std::max(0.0, *std::min_element(others.begin(), others.end()));
}

}  // namespace

StepProfile make_profile(const Ledger& ledger, const BucketPlan& plan, std::vector<ParameterInfo> parameters,
                         int ranks) {
  const Steps steps = ledger.steps().empty() ? Steps() : usable_steps(ledger, plan);
  BRIGADE_CHECK(!steps.empty(), "profile: no step of this plan was recorded in a StepScope");
  StepProfile out;
  out.ranks = ranks;
  out.steps = steps.size();
  out.plan = plan;
  out.parameters = std::move(parameters);
  out.before_s = median_of(steps, before);
  out.backward_s = median_of(steps, backward);
  out.after_s = median_after(steps, ranks);
  out.spread = relative_deviation(steps, [](const StepRecord& s) { return before(s) + backward(s); });
  out.ready_s.resize(out.parameters.size());
  for (std::size_t position = 0; position < plan.order.size(); ++position)
    out.ready_s[static_cast<std::size_t>(plan.order[position])] = median_of(steps, [&](const StepRecord& s) {
      return std::max(0.0, seconds(s.ready[position] - s.backward.begin));
    });
  for (std::size_t b = 0; b < plan.buckets.size(); ++b)
    out.collectives.push_back({plan.buckets[b].bytes, median_of(steps, [&](const StepRecord& s) {
                                 return seconds(s.buckets[b].end - s.buckets[b].start);
                               })});
  out.collectives.push_back({steps.back()->control_bytes, median_of(steps, [](const StepRecord& s) {
                               return seconds(s.control.end - s.control.begin);
                             })});
  out.gap_s = gap(steps);
  out.step_s = median_of(steps, [](const StepRecord& s) { return seconds(s.whole.end - s.whole.begin); });
  out.communication_s = median_of(steps, [](const StepRecord& s) { return seconds(s.communication()); });
  out.exposed_s = median_of(steps, [](const StepRecord& s) { return seconds(s.exposed()); });
  return out;
}

}  // namespace brigade::dist
