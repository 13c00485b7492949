// SPDX-License-Identifier: MIT
// tests/dist/bucket_plan_test.cpp - plans as data: caps, coverage, text and JSON (case A06).
#include <cmath>
#include <limits>

#include "dist/plan_makers.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

const std::vector<ParameterInfo> kModel{{"conv.weight", 400, DType::f32},
                                        {"bn.weight", 40, DType::f32},
                                        {"bn.bias", 40, DType::f32},
                                        {"fc.weight", 2000, DType::f32},
                                        {"fc.bias", 20, DType::f32}};

std::vector<int> reverse_order(const std::vector<ParameterInfo>& parameters) {
  return make_order("reverse", parameters);
}

std::vector<std::int64_t> sizes(const BucketPlan& plan) {
  std::vector<std::int64_t> out;
  for (const BucketSpec& bucket : plan.buckets) out.push_back(bucket.bytes);
  return out;
}

}  // namespace

TEST_CASE("a size plan goes backwards and closes a bucket before it overflows", "[dist][plan]") {
  const BucketPlan plan = plan_by_size(kModel, reverse_order(kModel), {.bytes = 480, .first_bytes = 100});
  REQUIRE(plan.order == std::vector<int>{4, 3, 2, 1, 0});
  // fc.bias alone (fc.weight would exceed 100), fc.weight oversize and alone, the rest fits 480 exactly.
  REQUIRE(sizes(plan) == std::vector<std::int64_t>{20, 2000, 480});
  check_plan(plan, kModel);
}

TEST_CASE("whatever the cap, every parameter is in exactly one bucket and never split", "[dist][plan][A06]") {
  const double cap = GENERATE(1.0, 400.0, 399.0, 2000.0, 1e5, 9e18, std::numeric_limits<double>::infinity());
  const BucketPlan plan = plan_by_size(kModel, reverse_order(kModel), {.bytes = cap, .first_bytes = cap});
  check_plan(plan, kModel);
  for (const BucketSpec& bucket : plan.buckets)
    REQUIRE((static_cast<double>(bucket.bytes) <= cap || bucket.range.count() == 1));
  if (cap == 1.0) REQUIRE(plan.buckets.size() == 5);
  if (cap >= 1e5) REQUIRE(plan.buckets.size() == 1);
}

TEST_CASE("caps that are not positive numbers are refused by the name of their flag",
          "[dist][plan][A06][error]") {
  const double bad = GENERATE(0.0, -1.0, std::nan(""), -std::numeric_limits<double>::infinity());
  REQUIRE_THROWS_WITH(cap_from_mib("--bucket-mb", bad),
                      ContainsSubstring("--bucket-mb: must be a positive number"));
  REQUIRE_THROWS_WITH(plan_by_size(kModel, reverse_order(kModel), {.bytes = bad, .first_bytes = 1}),
                      ContainsSubstring("positive"));
  REQUIRE_THROWS_WITH(plan_by_size(kModel, reverse_order(kModel), {.bytes = 1, .first_bytes = bad}),
                      ContainsSubstring("positive"));
}

TEST_CASE("a bucket never mixes dtypes", "[dist][plan]") {
  auto model = kModel;
  model[2].dtype = DType::f64;
  for (const BucketPlan& plan :
       {plan_flat(model, reverse_order(model)),
        plan_by_size(model, reverse_order(model), {.bytes = 1e9, .first_bytes = 1e9})}) {
    REQUIRE(plan.buckets.size() == 3);
    REQUIRE(plan.buckets[1].dtype == DType::f64);
    check_plan(plan, model);
  }
}

TEST_CASE("flat is one bucket and per-parameter has one each", "[dist][plan]") {
  REQUIRE(sizes(plan_flat(kModel, reverse_order(kModel))) == std::vector<std::int64_t>{2500});
  REQUIRE(sizes(plan_per_parameter(kModel, reverse_order(kModel))) ==
          std::vector<std::int64_t>{20, 2000, 40, 40, 400});
}

TEST_CASE("a zero-element parameter rides along", "[dist][plan]") {
  auto model = kModel;
  model.push_back({"empty", 0, DType::f32});
  const BucketPlan plan = plan_by_size(model, reverse_order(model), {.bytes = 480, .first_bytes = 100});
  check_plan(plan, model);
  REQUIRE(plan.buckets[0].range.count() == 2);
}

TEST_CASE("a plan survives JSON and its table names every bucket", "[dist][plan]") {
  const BucketPlan plan = plan_by_size(kModel, reverse_order(kModel), {.bytes = 480, .first_bytes = 100});
  REQUIRE(plan_from_json(plan_to_json(plan, kModel), kModel) == plan);
  REQUIRE_THAT(plan_table(plan, kModel),
               ContainsSubstring("bn.bias ... conv.weight") && ContainsSubstring("fc.bias"));
}

TEST_CASE("a plan that does not fit the model is refused", "[dist][plan][error]") {
  BucketPlan plan = plan_flat(kModel, reverse_order(kModel));
  SECTION("an unknown name") {
    auto other = kModel;
    other[0].name = "conv1.weight";
    REQUIRE_THROWS_WITH(plan_from_json(plan_to_json(plan, kModel), other),
                        ContainsSubstring("no parameter \"conv.weight\""));
  }
  SECTION("another size") {
    auto other = kModel;
    other[0].bytes = 404;
    REQUIRE_THROWS_WITH(check_plan(plan, other), ContainsSubstring("holds 2504 bytes; it says 2500"));
  }
  SECTION("a parameter twice") {
    plan.order[0] = plan.order[1];
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("\"fc.weight\" is in it twice"));
  }
  SECTION("a gap") {
    plan.buckets[0].range.end = 4;
    plan.buckets[0].bytes = 2100;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("cover 4 of 5"));
  }
  SECTION("not JSON, or JSON of another shape") {
    REQUIRE_THROWS_WITH(plan_from_json("{", kModel), ContainsSubstring("not a bucket plan"));
    REQUIRE_THROWS_WITH(plan_from_json("[1]", kModel), ContainsSubstring("not a bucket plan"));
  }
}
