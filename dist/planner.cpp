// SPDX-License-Identifier: MIT
// dist/planner.cpp - the cost model, the prediction, and the dynamic programme over cuts.
#include "dist/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace brigade::dist {
namespace {

constexpr std::array<std::int64_t, 4> kClassLimits{64 << 10, 1 << 20, 16 << 20,
                                                   std::numeric_limits<std::int64_t>::max()};

// Minimises the sum of ((a + b n - t) / t)² over a, b >= 0: a small bucket's error counts as much as a large one's.
CostModel::Class fit_class(std::span<const CostSample> samples, std::int64_t max_bytes) {
  double s = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
  for (const CostSample& sample : samples) {
    const double w = 1 / (sample.seconds * sample.seconds), x = static_cast<double>(sample.bytes);
    s += w;
    sx += w * x;
    sxx += w * x * x;
    sy += w * sample.seconds;
    sxy += w * x * sample.seconds;
  }
  const double determinant = s * sxx - sx * sx;
  const double slope = determinant > 1e-12 * s * sxx ? (s * sxy - sx * sy) / determinant : 0;
  const double level = s > 0 ? (sy - slope * sx) / s : 0;
  if (slope < 0) return {max_bytes, sy / s, 0};     // Noise: larger was faster.
  if (level < 0) return {max_bytes, 0, sxy / sxx};  // A line through the origin instead.
  return {max_bytes, level, slope};
}

bool has_two_sizes(std::span<const CostSample> samples) {
  return std::any_of(samples.begin(), samples.end(),
                     [&](const CostSample& s) { return s.bytes != samples.front().bytes; });
}

}  // namespace

double CostModel::seconds(std::int64_t bytes) const {
  const auto found =
      std::find_if(classes.begin(), classes.end() - 1, [&](const Class& c) { return bytes <= c.max_bytes; });
  return found->fixed_s + found->per_byte_s * static_cast<double>(bytes);
}

CostModel fit_cost(std::span<const CostSample> samples) {
  BRIGADE_CHECK(!samples.empty(), "fit_cost: needs at least one sample");
  for (const CostSample& sample : samples)
    BRIGADE_CHECK(sample.bytes >= 0 && sample.seconds > 0 && std::isfinite(sample.seconds),
                  "fit_cost: a sample needs a size and a time; got ", sample.bytes, " bytes in ",
                  sample.seconds, " s");
  const CostModel::Class overall = fit_class(samples, kClassLimits.back());
  CostModel model;
  std::int64_t above = -1;
  for (const std::int64_t limit : kClassLimits) {
    std::vector<CostSample> here;
    for (const CostSample& sample : samples)
      if (sample.bytes > above && sample.bytes <= limit) here.push_back(sample);
    above = limit;
    CostModel::Class fitted = has_two_sizes(here) ? fit_class(here, limit) : overall;
    fitted.max_bytes = limit;
    model.classes.push_back(fitted);
  }
  return model;
}

Prediction predict(std::span<const BucketSpec> buckets, const ReadyTimes& ready, const CostModel& cost) {
  Prediction out;
  for (const BucketSpec& bucket : buckets) {
    for (int i = bucket.range.begin; i < bucket.range.end; ++i)
      out.last_ready_s = std::max(out.last_ready_s, ready[static_cast<std::size_t>(i)]);
    const double duration = cost.seconds(bucket.bytes);
    out.finish_s = std::max(out.finish_s, out.last_ready_s) + duration;
    out.communication_s += duration;
  }
  return out;
}

double earliest_finish(std::span<const std::int64_t> bytes, const ReadyTimes& ready, double per_byte_s) {
  BRIGADE_CHECK(bytes.size() == ready.size(), "earliest_finish: needs a ready time for each of ",
                bytes.size(), " sizes; got ", ready.size());
  double bound = 0, travelling = 0, first = std::numeric_limits<double>::infinity();
  for (std::size_t j = bytes.size(); j-- > 0;) {
    first = std::min(first, ready[j]);
    travelling += per_byte_s * static_cast<double>(bytes[j]);
    bound = std::max(bound, first + travelling);
  }
  return bound;
}

BucketPlan plan_auto(std::span<const ParameterInfo> parameters, std::vector<int> order,
                     const ReadyTimes& ready, const CostModel& cost) {
  const std::size_t n = order.size();
  BRIGADE_CHECK(ready.size() == n && n > 0, "plan_auto: needs one ready time for each of ", n,
                " positions; got ", ready.size());
  // launchable[j]: everything before position j is ready. best[j]: earliest end of the wire's work on positions [0, j).
  // The last bucket of that prefix starts at some i: best[j] = min over i of max(best[i], launchable[j]) + cost(i..j).
  // An earlier end of a prefix never hurts what follows, so the principle of optimality holds.
  struct Best {
    double end = std::numeric_limits<double>::infinity();
    int buckets = 0;
    std::size_t from = 0;
  };
  std::vector<Best> best(n + 1);
  best[0].end = 0;
  double launchable = 0;
  for (std::size_t j = 1; j <= n; ++j) {
    launchable = std::max(launchable, ready[j - 1]);
    std::int64_t bytes = 0;
    for (std::size_t i = j; i-- > 0;) {
      const ParameterInfo& first = parameters[static_cast<std::size_t>(order[i])];
      if (first.dtype != parameters[static_cast<std::size_t>(order[j - 1])].dtype) break;
      bytes += first.bytes;
      const double end = std::max(best[i].end, launchable) + cost.seconds(bytes);
      const bool fewer = end == best[j].end && best[i].buckets + 1 < best[j].buckets;
      if (end < best[j].end || fewer) best[j] = {end, best[i].buckets + 1, i};
    }
  }

  std::vector<std::int32_t> ends;
  for (std::size_t j = n; j > 0; j = best[j].from) ends.push_back(static_cast<std::int32_t>(j));
  std::reverse(ends.begin(), ends.end());
  BucketPlan plan = plan_from_ends(parameters, std::move(order), ends, "auto");
  plan.rule = fmt::format("auto: {} buckets, predicted {:.2f} ms exposed", plan.buckets.size(),
                          1e3 * predict(plan.buckets, ready, cost).exposed_s());
  return plan;
}

}  // namespace brigade::dist
