// SPDX-License-Identifier: MIT
// dist/replanner.cpp - the three-step agreement behind dist/replanner.h.
#include "dist/replanner.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/ops.h"

namespace brigade::dist {
namespace {

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// A change of cuts is worth its gain relative to the whole step, of which the model knows backward and what follows.
double gain(const Prediction& before, const Prediction& after) {
  return 1 - after.finish_s / before.finish_s;
}

}  // namespace

std::string PlanChange::text() const {
  std::string out = fmt::format("plan auto: {} bucket{} since step {}; exposed ", buckets,
                                buckets == 1 ? "" : "s", step + 1);
  if (exposed_after_s) out += fmt::format("{:.2f} ms, ", 1e3 * *exposed_after_s);
  return out + fmt::format("predicted {:.2f} ms, before {:.2f} ms", 1e3 * after.exposed_s(),
                           1e3 * exposed_before_s);
}

Replanner::Replanner(ProcessGroup& group, std::vector<ParameterInfo> parameters, ReplanOptions options)
    : group_(&group), parameters_(std::move(parameters)), options_(options) {
  BRIGADE_CHECK(options_.period >= 3, "replanner: period must be at least 3 steps; got ", options_.period);
}

void Replanner::after_step(const StepRecord* record, std::int64_t step, const BucketPlan& plan) {
  if (record != nullptr && record->step > last_seen_ && record->step >= planned_at_) {
    last_seen_ = record->step;
    ++seen_;
    observe(*record);
    measure_change(*record, step);
  }
  switch (phase_) {
    case Phase::measuring:
      // The first step creates primitives and touches memory for the first time: it counts for nothing.
      if (step % options_.period != 1 || seen_ < 2 || durations_.empty()) return;
      send_measurements(plan);
      phase_ = Phase::deciding;
      return;
    case Phase::deciding:
      measurements_work_.wait();  // A step has passed since: it is there.
      decision_ = Tensor::zeros({static_cast<std::int64_t>(parameters_.size()) + 1}, DType::i32);
      next_step_ = step + 1;
      if (group_->rank() == 0) decide(plan, next_step_);
      decision_work_ = group_->broadcast(decision_, 0, "plan");
      phase_ = Phase::announced;
      return;
    case Phase::announced:
      fail("replanner: a decided plan was not fetched before the next step");
  }
}

// Times since the last look are kept until they are sent.
void Replanner::observe(const StepRecord& record) {
  control_bytes_ = record.control_bytes;
  const auto since_start = [&](Clock::time_point t) {
    return std::max(0.0, seconds(t - record.backward.begin));
  };
  ReadyTimes ready;
  for (const Clock::time_point t : record.ready) ready.push_back(since_start(t));
  if (ready_.size() != ready.size() || seen_ <= 2) {
    ready_ = ready;
  } else {
    for (std::size_t i = 0; i < ready.size(); ++i) ready_[i] += options_.smoothing * (ready[i] - ready_[i]);
  }
  std::vector<double> durations{seconds(record.control.end - record.control.begin)};
  for (const BucketRecord& bucket : record.buckets) durations.push_back(seconds(bucket.end - bucket.start));
  // Of several steps the shortest: a rank that waited for a late peer inside the call measured the peer, not the wire.
  if (durations_.size() != durations.size()) durations_ = durations;
  for (std::size_t i = 0; i < durations.size(); ++i) durations_[i] = std::min(durations_[i], durations[i]);
}

// The first step under a new plan counts for nothing: it touches new views for the first time.
void Replanner::measure_change(const StepRecord& record, std::int64_t step) {
  const double exposed = seconds(record.exposed());
  exposed_s_ = seen_ <= 2 ? exposed : exposed_s_ + options_.smoothing * (exposed - exposed_s_);
  if (!change_ || change_->exposed_after_s || record.step <= change_->step) return;
  exposed_sum_s_ += exposed;
  if (++exposed_steps_ < options_.period - 1) return;
  change_->exposed_after_s = exposed_sum_s_ / exposed_steps_;
  change_->measured_step = step;
}

void Replanner::send_measurements(const BucketPlan& plan) {
  sample_bytes_ = {control_bytes_};
  for (const BucketSpec& bucket : plan.buckets) sample_bytes_.push_back(bucket.bytes);
  // One reduction for both: the largest ready time and, negated, the smallest duration.
  std::vector<double> values = ready_;
  for (const double duration : durations_) values.push_back(-duration);
  measurements_ = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  measurements_work_ = group_->all_reduce(measurements_, Reduce::max, "measurements");
  durations_.clear();
}

void Replanner::decide(const BucketPlan& plan, std::int64_t next_step) {
  const std::vector<double> values = measurements_.to_vector<double>();
  const std::size_t n = parameters_.size();
  const ReadyTimes ready(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
  std::vector<CostSample> samples;
  for (std::size_t i = 0; i < sample_bytes_.size(); ++i)
    samples.push_back({sample_bytes_[i], std::max(1e-9, -values[n + i])});
  const CostModel cost = fit_cost(samples);

  const BucketPlan candidate = plan_auto(parameters_, plan.order, ready, cost);
  const Prediction before = predict(plan.buckets, ready, cost),
                   after = predict(candidate.buckets, ready, cost);
  gains_in_a_row_ = gain(before, after) > options_.min_gain ? gains_in_a_row_ + 1 : 0;
  if (gains_in_a_row_ == 0 || (planned_once_ && gains_in_a_row_ < options_.patience)) return;
  planned_once_ = true;
  gains_in_a_row_ = 0;
  change_ = PlanChange{.step = next_step,
                       .buckets = candidate.buckets.size(),
                       .before = before,
                       .after = after,
                       .exposed_before_s = exposed_s_,
                       .exposed_after_s = {}};
  exposed_sum_s_ = 0;
  exposed_steps_ = 0;
  std::int32_t* to = decision_.data<std::int32_t>();
  *to++ = static_cast<std::int32_t>(candidate.buckets.size());
  for (const BucketSpec& bucket : candidate.buckets) *to++ = bucket.range.end;
}

std::optional<BucketPlan> Replanner::before_step(const BucketPlan& plan) {
  if (phase_ != Phase::announced) return std::nullopt;
  decision_work_.wait();
  phase_ = Phase::measuring;
  const std::int32_t* from = decision_.data<std::int32_t>();
  const int buckets = *from++;
  if (buckets == 0) return std::nullopt;
  planned_at_ = next_step_;
  durations_.clear();  // They were of the old buckets.
  return plan_from_ends(parameters_, plan.order, std::span(from, static_cast<std::size_t>(buckets)), "auto");
}

}  // namespace brigade::dist
