// SPDX-License-Identifier: MIT
// dist/what_if.cpp - costs of collectives in other worlds, and the replay of one step. Read before: dist/planner.cpp.
#include "dist/what_if.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/choices.h"
#include "dist/grad_sync.h"

namespace brigade::dist {
namespace {

// Costs stand in dist/algorithms/algorithms.h. p > 1 ranks, n bytes.
Traffic ring(double n, int ranks) {
  const double p = ranks;
  return {2 * (p - 1), 2 * (p - 1) / p * n};
}
Traffic tree(double n, int ranks) {
  const double rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  return {2 * rounds, 2 * rounds * n};
}
Traffic naive(double n, int ranks) { return {2.0 * (ranks - 1), 2.0 * (ranks - 1) * n}; }
// Ranks beyond a power of two hand their data to another one first, and get the result from it.
Traffic halving_doubling(double n, int ranks) {
  const auto power = std::bit_floor(static_cast<unsigned>(ranks));
  const double rounds = std::bit_width(power) - 1, p = power;
  const Traffic even{2 * rounds, 2 * (p - 1) / p * n};
  return static_cast<int>(power) == ranks ? even : Traffic{even.messages + 2, even.bytes + 2 * n};
}

struct AlgorithmCost {
  std::string_view name;
  Traffic (*traffic)(double n, int ranks);
};
constexpr std::array kAlgorithms{AlgorithmCost{"ring", ring}, AlgorithmCost{"tree", tree},
                                 AlgorithmCost{"halving_doubling", halving_doubling},
                                 AlgorithmCost{"naive", naive}};

// Traffic is proportional to bytes, but for the messages.
CostModel::Class on_link(const Link& link, std::string_view algorithm, int ranks) {
  const Traffic of_a_byte = all_reduce_traffic(algorithm, 1, ranks);
  return {.max_bytes = std::numeric_limits<std::int64_t>::max(),
          .fixed_s = of_a_byte.messages * link.latency_s,
          .per_byte_s = of_a_byte.bytes / link.bytes_per_s};
}

// The recorded run's network with other ranks: fixed costs go with messages, the others with bytes.
CostModel recorded_cost(const StepProfile& profile, const Cluster& cluster) {
  BRIGADE_CHECK(profile.ranks > 1, "what-if: a run of one rank tells nothing of a network; name a link for ",
                cluster.ranks, " ranks");
  const Traffic then = all_reduce_traffic(profile.algorithm, 1, profile.ranks),
                now = all_reduce_traffic(cluster.algorithm, 1, cluster.ranks);
  CostModel cost = fit_cost(profile.collectives);
  for (CostModel::Class& c : cost.classes) {
    c.fixed_s *= now.messages / then.messages;
    c.per_byte_s *= now.bytes / then.bytes;
  }
  return cost;
}

void check(const StepProfile& profile, const Scenario& s) {
  BRIGADE_CHECK(profile.parameters.size() == profile.ready_s.size() && !profile.parameters.empty(),
                "what-if: the profile needs a ready time for each of its parameters; got ",
                profile.ready_s.size(), " for ", profile.parameters.size());
  BRIGADE_CHECK(s.cluster.ranks >= 1, "what-if: needs at least one rank; got ", s.cluster.ranks);
  BRIGADE_CHECK(s.cluster.ranks_per_host >= 1, "what-if: needs at least one rank a host; got ",
                s.cluster.ranks_per_host);
  for (const double scale : {s.batch, s.compute})
    BRIGADE_CHECK(std::isfinite(scale) && scale > 0, "what-if: batch and compute must be positive; got ",
                  scale);
  for (const double value : {s.spread.value_or(0), s.overhead_s.value_or(0)})
    BRIGADE_CHECK(std::isfinite(value) && value >= 0,
                  "what-if: spread and overhead must not be negative; got ", value);
}

void add_overhead(CostModel& cost, double overhead) {
  for (CostModel::Class& c : cost.classes) c.fixed_s += overhead;
}

// Times of gradients by position of the plan, from the start of backward.
ReadyTimes by_position(const StepProfile& profile, const std::vector<int>& order, double scale) {
  ReadyTimes ready;
  for (const int index : order) ready.push_back(scale * profile.ready_s[static_cast<std::size_t>(index)]);
  return ready;
}

}  // namespace

std::vector<std::string_view> all_reduce_algorithms() { return names(kAlgorithms); }

Traffic all_reduce_traffic(std::string_view algorithm, std::int64_t bytes, int ranks) {
  const AlgorithmCost& chosen = choose("algorithm", algorithm == "auto" ? "ring" : algorithm, kAlgorithms);
  return ranks == 1 ? Traffic{} : chosen.traffic(static_cast<double>(bytes), ranks);
}

CostModel all_reduce_cost(const Cluster& cluster) {
  BRIGADE_CHECK(cluster.link.has_value(), "what-if: the cost of an all-reduce needs a link");
  const int in_host = std::min(cluster.ranks, cluster.ranks_per_host);
  if (in_host <= 1) return {{on_link(*cluster.link, cluster.algorithm, cluster.ranks)}};
  // Reduce-scatter inside each host, an all-reduce of the slices between hosts, whose sum the host's link carries, and
  // an all-gather inside again: together a ring in each host and one between them. A host may be half full.
  const int hosts = (cluster.ranks + in_host - 1) / in_host;
  CostModel::Class cost = on_link(cluster.in_host, "ring", in_host);
  const CostModel::Class between = on_link(*cluster.link, cluster.algorithm, hosts);
  cost.fixed_s += between.fixed_s;
  cost.per_byte_s += between.per_byte_s;
  return {{cost}};
}

double overhead_s(const StepProfile& profile) {
  if (!profile.link || profile.ranks == 1 || profile.collectives.empty()) return profile.gap_s;
  const CostModel model =
      all_reduce_cost({.ranks = profile.ranks, .link = profile.link, .algorithm = profile.algorithm});
  std::vector<double> excess;
  for (const CostSample& sample : profile.collectives)
    excess.push_back(sample.seconds - model.seconds(sample.bytes));
  const auto middle = excess.begin() + static_cast<std::ptrdiff_t>(excess.size() / 2);
  std::nth_element(excess.begin(), middle, excess.end());
  return profile.gap_s + std::max(0.0, *middle);
}

CostModel cost_model(const StepProfile& profile, const Cluster& cluster) {
  if (cluster.ranks == 1) return {{{}}};
  Cluster filled = cluster;
  if (!filled.link) filled.link = profile.link;
  CostModel cost = filled.link ? all_reduce_cost(filled) : recorded_cost(profile, filled);
  add_overhead(cost, overhead_s(profile));
  return cost;
}

double expected_maximum(int n) {
  BRIGADE_CHECK(n >= 1, "expected_maximum: needs at least one value; got ", n);
  const double share = (n - 0.375) / (n + 0.25);
  double low = 0, high = 10;  // The share is at least one half; bisection of the distribution function.
  while (high - low > 1e-12) {
    const double x = 0.5 * (low + high);
    (0.5 * std::erfc(-x / std::sqrt(2.0)) < share ? low : high) = x;
  }
  return low;
}

Forecast forecast(const StepProfile& profile, const Scenario& scenario) {
  check(profile, scenario);
  const Strategy& chosen = strategy(scenario.strategy);
  const int ranks = scenario.cluster.ranks;
  const double late = 1 + scenario.spread.value_or(profile.spread) * expected_maximum(ranks);
  const double scale = scenario.compute * scenario.batch * late;  // Of what depends on the batch.
  const double backward = scale * profile.backward_s, after = scenario.compute * profile.after_s;
  CostModel cost = cost_model(profile, scenario.cluster);
  if (scenario.overhead_s && ranks > 1) add_overhead(cost, *scenario.overhead_s - overhead_s(profile));

  Forecast out;
  out.plan = chosen.plan(profile.parameters, scenario.plan);
  ReadyTimes ready = by_position(profile, out.plan.order, scale);
  if (chosen.plans_by_rule && plan_rule(scenario.plan.rule).replans)
    out.plan = plan_auto(profile.parameters, out.plan.order, ready, cost);
  out.one_rank_s = scenario.batch * (profile.before_s + profile.backward_s) + profile.after_s;
  out.compute_s = scenario.compute * scenario.batch * (profile.before_s + profile.backward_s) + after;
  out.straggler_s = scale * (profile.before_s + profile.backward_s) + after - out.compute_s;
  out.step_s = out.compute_s + out.straggler_s;
  if (ranks == 1) return out;

  if (!chosen.overlaps) ready.assign(ready.size(), backward);
  // The roll call is a bucket without gradients. Its words are a slot a rank.
  const std::int64_t words =
      profile.collectives.empty() ? 0 : profile.collectives.back().bytes / profile.ranks;
  std::vector<BucketSpec> wire{{.range = {0, 0}, .bytes = words * ranks}};
  wire.insert(wire.end(), out.plan.buckets.begin(), out.plan.buckets.end());
  const Prediction replay = predict(wire, ready, cost);
  const double finish = std::max(replay.finish_s, backward);
  out.communication_s = replay.communication_s - cost.seconds(wire.front().bytes);
  out.exposed_s = finish - backward;
  const double trailing = profile.trailing_bytes > 0 ? cost.seconds(profile.trailing_bytes) : 0;
  out.step_s = scale * profile.before_s + finish + std::max(after, trailing);
  return out;
}

}  // namespace brigade::dist
