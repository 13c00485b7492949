// SPDX-License-Identifier: MIT
// tests/dist/what_if_test.cpp - predictions against costs and schedules worked out by hand.
#include "dist/what_if.h"

#include <cmath>

#include "dist/algorithms/algorithms.h"
#include "dist/grad_sync.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr double kTiny = 1e-12;  // Rounding of sums of a few terms.

// Four parameters of 1 MB; backward takes 40 ms and makes one ready every 10, the last registered first. The roll call
// is free, nothing has an overhead.
StepProfile profile() {
  StepProfile p;
  p.ranks = 2;
  p.images = 16;
  for (int i = 0; i < 4; ++i) {
    p.parameters.push_back({str("p", i), 1'000'000, DType::f32, 2});
    p.ready_s.push_back(1e-3 * (40 - 10 * i));
  }
  p.before_s = 0.020;
  p.backward_s = 0.040;
  p.after_s = 0.005;
  p.plan = plan_per_parameter(p.parameters, {3, 2, 1, 0});
  return p;
}

// 100 MB/s: with two ranks 10 ms a parameter, and 2 x latency.
Cluster two_ranks(double latency_s = 0) { return {.ranks = 2, .link = Link{latency_s, 1e8}}; }

}  // namespace

TEST_CASE("all-reduces cost what dist/algorithms/algorithms.h says", "[dist][what_if]") {
  const auto is = [](const Traffic& traffic, double messages, double bytes) {
    REQUIRE_THAT(traffic.messages, WithinRel(messages, 1e-12));
    REQUIRE_THAT(traffic.bytes, WithinRel(bytes, 1e-12));
  };
  is(all_reduce_traffic("ring", 1000, 4), 6, 1500);
  is(all_reduce_traffic("auto", 1000, 4), 6, 1500);
  is(all_reduce_traffic("tree", 1000, 4), 4, 4000);
  is(all_reduce_traffic("tree", 1000, 5), 6, 6000);
  is(all_reduce_traffic("naive", 1000, 4), 6, 6000);
  is(all_reduce_traffic("halving_doubling", 1000, 8), 6, 1750);
  is(all_reduce_traffic("halving_doubling", 1000, 9), 8, 3750);
  for (const Algorithm& algorithm : algorithms()) {
    REQUIRE(all_reduce_traffic(algorithm.name, 1000, 1).messages == 0);
    is(all_reduce_traffic(algorithm.name, 1000, 2), 2,
       algorithm.name == "tree" || algorithm.name == "naive" ? 2000 : 1000);
  }
  REQUIRE_THROWS_WITH(all_reduce_traffic("rings", 1, 2),
                      ContainsSubstring("unknown algorithm \"rings\"; choose from ring"));
}

TEST_CASE("a ring agrees with the modelled network", "[dist][what_if]") {
  for (const int ranks : {2, 3, 64}) {
    NetworkModel model;
    model.links = {{0, {50e-6, 1.25e8}}};
    const CostModel cost = all_reduce_cost({.ranks = ranks, .link = model.links.front().link});
    REQUIRE_THAT(
        cost.seconds(1'000'000),
        WithinAbs(1e-9 * static_cast<double>(model.time("all_reduce", 1'000'000, ranks, 0, 0).count()),
                  2e-9));
  }
}

TEST_CASE("two levels are a ring in each host and one between hosts", "[dist][what_if]") {
  const Cluster cluster{.ranks = 32, .link = Link{5e-6, 1e9}, .ranks_per_host = 8, .in_host = {1e-6, 1e10}};
  const double n = 1e6, in_host = 14 * 1e-6 + 1.75 * n / 1e10, between = 6 * 5e-6 + 1.5 * n / 1e9;
  REQUIRE_THAT(all_reduce_cost(cluster).seconds(1'000'000), WithinRel(in_host + between, 1e-9));
  Cluster one_host = cluster;
  one_host.ranks = 8;
  REQUIRE_THAT(all_reduce_cost(one_host).seconds(1'000'000), WithinRel(in_host, 1e-9));
  Cluster half_full = cluster;
  half_full.ranks = 25;  // Four hosts.
  REQUIRE_THAT(all_reduce_cost(half_full).seconds(1'000'000), WithinRel(in_host + between, 1e-9));
  Cluster flat = cluster;
  flat.ranks_per_host = 1;
  REQUIRE(all_reduce_cost(flat).seconds(1'000'000) > in_host + between);
}

TEST_CASE("each strategy is replayed with its own schedule", "[dist][what_if]") {
  // Forward ends at 20 ms, backward at 60. A parameter travels 10 ms and 2 ms of latency.
  const auto step_ms = [](const Scenario& scenario) { return 1e3 * forecast(profile(), scenario).step_s; };
  Scenario s{.cluster = two_ranks(1e-3)};
  s.strategy = "naive";  // 60 + 4 * 12 + 5
  REQUIRE_THAT(step_ms(s), WithinAbs(113, 1e-6));
  s.strategy = "flat";  // 60 + 42 + 5
  REQUIRE_THAT(step_ms(s), WithinAbs(107, 1e-6));
  s.strategy = "per_parameter";  // The roll call of no bytes takes 2 ms of the wire. 30 + 4 * 12 = 78, and 5.
  REQUIRE_THAT(step_ms(s), WithinAbs(83, 1e-6));
  s.strategy = "bucketed";
  s.plan = {.rule = "size",
            .caps = {.bytes = 2e6, .first_bytes = 2e6}};  // Two buckets: 40 + 22 = 62 > 60, 84, and 5.
  REQUIRE_THAT(step_ms(s), WithinAbs(89, 1e-6));
  const Forecast f = forecast(profile(), s);
  REQUIRE(f.plan.buckets.size() == 2);
  REQUIRE_THAT(f.communication_s, WithinAbs(0.044, kTiny));
  REQUIRE_THAT(f.exposed_s, WithinAbs(0.024, kTiny));
  REQUIRE_THAT(f.efficiency(), WithinRel(65.0 / 89, 1e-9));
}

TEST_CASE("plan auto is planned for the world that is asked about", "[dist][what_if]") {
  Scenario s{.cluster = two_ranks()};  // No latency: the finest cut is best.
  REQUIRE(forecast(profile(), s).plan.buckets.size() == 4);
  s.cluster.link->latency_s = 1;  // A second a bucket: one is best.
  REQUIRE(forecast(profile(), s).plan.buckets.size() == 1);
}

TEST_CASE("one rank needs no network and is as fast as it was recorded", "[dist][what_if]") {
  for (const Strategy& strategy : strategies()) {
    const Forecast f = forecast(profile(), {.cluster = {.ranks = 1}, .strategy = std::string(strategy.name)});
    REQUIRE_THAT(f.step_s, WithinAbs(0.065, kTiny));
    REQUIRE(f.exposed_s == 0);
    REQUIRE_THAT(f.efficiency(), WithinAbs(1, kTiny));
  }
}

TEST_CASE("the batch scales forward and backward, and not the optimizer", "[dist][what_if]") {
  const Forecast f = forecast(profile(), {.cluster = {.ranks = 1}, .batch = 3});
  REQUIRE_THAT(f.step_s, WithinAbs(3 * 0.060 + 0.005, kTiny));
  REQUIRE_THAT(forecast(profile(), {.cluster = {.ranks = 1}, .compute = 2}).step_s, WithinAbs(0.130, kTiny));
  // Twice the batch hides what one batch cannot: 40 + 4 * 10 after the first gradient at 20 of 80 ms.
  const Forecast two = forecast(profile(), {.cluster = two_ranks(), .strategy = "per_parameter", .batch = 2});
  REQUIRE_THAT(two.exposed_s, WithinAbs(0.010, kTiny));
}

TEST_CASE("ranks wait for the slowest of them", "[dist][what_if]") {
  REQUIRE_THAT(expected_maximum(1), WithinAbs(0, 1e-9));
  // Exact: 1 / sqrt(pi), 1.5 / sqrt(pi); of 100 by Harter (1961). Blom's approximation is within a few percent.
  REQUIRE_THAT(expected_maximum(2), WithinRel(0.5642, 0.05));
  REQUIRE_THAT(expected_maximum(3), WithinRel(0.8463, 0.03));
  REQUIRE_THAT(expected_maximum(100), WithinRel(2.5076, 0.02));
  StepProfile p = profile();
  p.spread = 0.1;
  Scenario s{.cluster = {.ranks = 4, .link = Link{}}};  // A perfect network.
  const double late = 0.1 * expected_maximum(4) * 0.060;
  REQUIRE_THAT(forecast(p, s).straggler_s, WithinAbs(late, kTiny));
  REQUIRE_THAT(forecast(p, s).step_s, WithinAbs(0.065 + late, kTiny));
  s.spread = 0;
  REQUIRE_THAT(forecast(p, s).step_s, WithinAbs(0.065, kTiny));
}

TEST_CASE("what collectives took longer than the recorded links explain is their overhead",
          "[dist][what_if]") {
  StepProfile p = profile();
  p.link = two_ranks().link;
  p.gap_s = 1e-3;
  for (int i = 0; i < 5; ++i)
    p.collectives.push_back({1'000'000, 0.010 + 2e-3});  // 2 ms more than the model.
  p.collectives.push_back({0, 0});
  REQUIRE_THAT(overhead_s(p), WithinAbs(3e-3, kTiny));
  Scenario s{.cluster = two_ranks(), .strategy = "naive"};
  REQUIRE_THAT(forecast(p, s).step_s, WithinAbs(0.065 + 4 * 0.013, kTiny));
  s.overhead_s = 0;
  REQUIRE_THAT(forecast(p, s).step_s, WithinAbs(0.065 + 4 * 0.010, kTiny));
}

TEST_CASE("without a link the recorded network is scaled to other ranks", "[dist][what_if]") {
  StepProfile p =
      profile();  // Recorded with two ranks: 2 ms and 10 ns a byte, or links of 1 ms and 100 MB/s.
  for (const std::int64_t bytes : {1'000, 50'000, 100'000, 900'000, 2'000'000, 4'000'000})
    p.collectives.push_back({bytes, 2e-3 + 1e-8 * static_cast<double>(bytes)});
  const CostModel four = cost_model(p, {.ranks = 4});
  const CostModel links = all_reduce_cost({.ranks = 4, .link = Link{1e-3, 1e8}});
  for (const std::int64_t bytes : {1'000, 500'000, 3'000'000})
    REQUIRE_THAT(four.seconds(bytes), WithinRel(links.seconds(bytes), 1e-6));
  p.ranks = 1;
  REQUIRE_THROWS_WITH(cost_model(p, {.ranks = 4}), ContainsSubstring("one rank tells nothing of a network"));
}

TEST_CASE("the roll call goes ahead of the buckets and grows with the ranks", "[dist][what_if]") {
  StepProfile p = profile();
  p.collectives = {{100'000, 1e-3}};  // Of two ranks: 50 kB a rank.
  p.ready_s.assign(4, 0);             // Everything is ready when backward begins.
  Scenario s{.cluster = two_ranks(), .strategy = "flat"};
  REQUIRE_THAT(forecast(p, s).exposed_s, WithinAbs(0.040, kTiny));  // Hidden behind backward.
  s.strategy = "bucketed";
  s.plan = {.rule = "size", .caps = {.bytes = 1e9, .first_bytes = 1e9}};
  s.overhead_s = 0;
  REQUIRE_THAT(forecast(p, s).exposed_s,
               WithinAbs(0.001 + 0.040 - 0.040, kTiny));  // 1 ms on the wire before.
}

TEST_CASE("what travels beside the optimizer shows if it takes longer", "[dist][what_if]") {
  StepProfile p = profile();
  p.trailing_bytes = 8;
  Scenario s{.cluster = two_ranks(1e-3), .strategy = "flat"};  // 2 ms, behind 5 ms of optimizer.
  REQUIRE_THAT(forecast(p, s).step_s, WithinAbs(0.107, 1e-9));
  s.cluster.link->latency_s = 10e-3;  // 20 ms instead of 5.
  REQUIRE_THAT(forecast(p, s).step_s, WithinAbs(0.060 + 0.060 + 0.020, 1e-6));
}

TEST_CASE("scenarios out of range are refused", "[dist][what_if][error]") {
  const auto refuses = [](const Scenario& s, const char* why) {
    REQUIRE_THROWS_WITH(forecast(profile(), s), ContainsSubstring(why));
  };
  refuses({.cluster = {.ranks = 0}}, "at least one rank; got 0");
  refuses({.cluster = {.ranks = 2, .ranks_per_host = 0}}, "at least one rank a host; got 0");
  refuses({.strategy = "bucket"}, "unknown strategy \"bucket\"");
  refuses({.batch = 0}, "must be positive; got 0");
  refuses({.compute = std::nan("")}, "must be positive; got nan");
  refuses({.spread = -1}, "must not be negative; got -1");
  StepProfile empty;
  REQUIRE_THROWS_WITH(forecast(empty, {}),
                      ContainsSubstring("a ready time for each of its parameters; got 0 for 0"));
}
