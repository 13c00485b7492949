// SPDX-License-Identifier: MIT
// tests/dist/planner_test.cpp - the planner against brute force, and the cost model against known networks.
#include "dist/planner.h"

#include <limits>
#include <numeric>
#include <random>

#include "dist/plan_makers.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

struct Scene {
  std::vector<ParameterInfo> parameters;
  std::vector<int> order;
  ReadyTimes ready;
  CostModel cost;
};

// A seeded model of n parameters: sizes over five decades, gradients ready one after another with disorder.
Scene random_scene(int n, unsigned seed) {
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Scene scene;
  double time = 0;
  for (int i = 0; i < n; ++i) {
    const auto bytes = static_cast<std::int64_t>(std::pow(10.0, uniform(1, 6)));
    const DType dtype = seed % 3 == 0 && i > n / 2 ? DType::f64 : DType::f32;
    scene.parameters.push_back({str("p", i), bytes, dtype});
    time += uniform(0, 2e-3);
    scene.ready.push_back(time + uniform(-1e-3, 1e-3));
  }
  scene.order.resize(static_cast<std::size_t>(n));
  std::iota(scene.order.rbegin(), scene.order.rend(), 0);
  scene.cost = {{{1000, uniform(1e-5, 1e-3), uniform(1e-9, 1e-7)},
                 {std::numeric_limits<std::int64_t>::max(), uniform(1e-5, 2e-3), uniform(1e-10, 1e-8)}}};
  return scene;
}

// Every way to cut n positions: bit i of `cuts` closes a bucket behind position i.
BucketPlan cut_by_bits(const Scene& scene, unsigned cuts) {
  BucketPlan plan;
  plan.order = scene.order;
  for (int i = 0; i < static_cast<int>(scene.order.size()); ++i) {
    const ParameterInfo& p =
        scene.parameters[static_cast<std::size_t>(scene.order[static_cast<std::size_t>(i)])];
    if (i == 0 || (cuts >> (i - 1) & 1) != 0 || plan.buckets.back().dtype != p.dtype)
      plan.buckets.push_back({{i, i}, 0, p.dtype});
    plan.buckets.back().range.end = i + 1;
    plan.buckets.back().bytes += p.bytes;
  }
  return plan;
}

}  // namespace

TEST_CASE("no way to cut beats the planner's, for up to 12 parameters", "[dist][planner]") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const int n = 1 + static_cast<int>(seed % 12);
    const Scene scene = random_scene(n, seed);
    const BucketPlan plan = plan_auto(scene.parameters, scene.order, scene.ready, scene.cost);
    check_plan(plan, scene.parameters);
    const double found = predict(plan.buckets, scene.ready, scene.cost).finish_s;
    double best = std::numeric_limits<double>::infinity();
    for (unsigned cuts = 0; cuts < 1u << (n - 1); ++cuts)
      best = std::min(best, predict(cut_by_bits(scene, cuts).buckets, scene.ready, scene.cost).finish_s);
    REQUIRE_THAT(found, WithinRel(best, 1e-12));
  }
}

TEST_CASE("in the model the planner is never worse than a size cap", "[dist][planner]") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Scene scene = random_scene(62, seed);
    const double found = predict(plan_auto(scene.parameters, scene.order, scene.ready, scene.cost).buckets,
                                 scene.ready, scene.cost)
                             .finish_s;
    for (double cap = 100; cap < 1e9; cap *= 3)
      for (const double first : {cap, cap / 10})
        REQUIRE(
            found <=
            predict(plan_by_size(scene.parameters, scene.order, {.bytes = cap, .first_bytes = first}).buckets,
                    scene.ready, scene.cost)
                    .finish_s *
                (1 + 1e-12));
  }
}

TEST_CASE("with free messages the planner needs no more buckets than ready times", "[dist][planner]") {
  Scene scene = random_scene(8, 1);
  scene.cost = {{{std::numeric_limits<std::int64_t>::max(), 0, 0}}};
  REQUIRE(plan_auto(scene.parameters, scene.order, scene.ready, scene.cost).buckets.size() == 1);
}

TEST_CASE("a prediction follows the wire bucket by bucket", "[dist][planner]") {
  // Buckets of 100 and 50 bytes at 1 s + 0.01 s per byte; gradients ready at 1, 3 | 2.
  const std::vector<BucketSpec> buckets{{{0, 2}, 100, DType::f32}, {{2, 3}, 50, DType::f32}};
  const CostModel cost{{{1000, 1, 0.01}}};
  const Prediction p = predict(buckets, {1, 3, 2}, cost);
  REQUIRE_THAT(p.last_ready_s, WithinAbs(3, 1e-12));
  REQUIRE_THAT(p.finish_s, WithinAbs(3 + 2 + 1.5, 1e-12));
  REQUIRE_THAT(p.communication_s, WithinAbs(3.5, 1e-12));
  REQUIRE_THAT(p.exposed_s(), WithinAbs(3.5, 1e-12));
}

TEST_CASE("the cost model recovers latency and bandwidth of each size class", "[dist][planner]") {
  std::vector<CostSample> samples;
  for (const std::int64_t bytes : {1000, 8000, 60000})
    samples.push_back({bytes, 5e-5 + static_cast<double>(bytes) * 2e-8});
  for (const std::int64_t bytes : {2'000'000, 8'000'000})
    samples.push_back({bytes, 3e-4 + static_cast<double>(bytes) * 8e-9});
  const CostModel cost = fit_cost(samples);
  REQUIRE_THAT(cost.seconds(30'000), WithinRel(5e-5 + 30'000 * 2e-8, 1e-9));
  REQUIRE_THAT(cost.seconds(4'000'000), WithinRel(3e-4 + 4e6 * 8e-9, 1e-9));
}

TEST_CASE("the cost model never predicts negative costs from noise", "[dist][planner]") {
  for (const auto& samples :
       {std::vector<CostSample>{{1000, 2e-3}, {2000, 1e-3}},
        std::vector<CostSample>{{1000, 1e-6}, {2000, 1e-2}}, std::vector<CostSample>{{5, 1e-3}}}) {
    const CostModel cost = fit_cost(samples);
    for (const CostModel::Class& c : cost.classes) REQUIRE((c.fixed_s >= 0 && c.per_byte_s >= 0));
    REQUIRE(cost.seconds(1'000'000) > 0);
  }
  REQUIRE_THROWS_WITH(fit_cost({}), ContainsSubstring("at least one sample"));
}

TEST_CASE("no plan finishes before the bound that every byte travels after its gradient", "[dist][planner]") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    Scene scene = random_scene(10, seed);
    const double per_byte = 1e-8;
    scene.cost = {{{std::numeric_limits<std::int64_t>::max(), 0, per_byte}}};
    std::vector<std::int64_t> bytes;
    for (const int index : scene.order)
      bytes.push_back(scene.parameters[static_cast<std::size_t>(index)].bytes);
    const double bound = earliest_finish(bytes, scene.ready, per_byte);
    double best = std::numeric_limits<double>::infinity();
    for (unsigned cuts = 0; cuts < 1U << 9; ++cuts)
      best = std::min(best, predict(cut_by_bits(scene, cuts).buckets, scene.ready, scene.cost).finish_s);
    REQUIRE(bound <= best + 1e-12);
    // Without fixed costs one parameter a bucket is as good as it gets, and close if gradients come nearly in order.
    REQUIRE(best <= bound + 3e-3);
  }
}
