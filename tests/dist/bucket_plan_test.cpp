// SPDX-License-Identifier: MIT
// tests/dist/bucket_plan_test.cpp - plans as data: caps, coverage, parts and tables (case A06). As JSON:
// tests/dist/plan_json_test.cpp.
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

TEST_CASE("the table names every bucket, and the elements of a part", "[dist][plan]") {
  const BucketPlan plan = plan_by_size(kModel, reverse_order(kModel), {.bytes = 480, .first_bytes = 100});
  REQUIRE_THAT(plan_table(plan, kModel),
               ContainsSubstring("bn.bias ... conv.weight") && ContainsSubstring("fc.bias"));
  const BucketPlan split =
      plan_by_size(kModel, reverse_order(kModel), {.bytes = 1024, .first_bytes = 100}, Oversize::split);
  REQUIRE_THAT(plan_table(split, kModel),
               ContainsSubstring("fc.weight [0, 256)") && ContainsSubstring("fc.weight [256, 500)"));
}

TEST_CASE("a plan that does not fit the model is refused", "[dist][plan][error]") {
  BucketPlan plan = plan_flat(kModel, reverse_order(kModel));
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
}

TEST_CASE("parts that do not cover their parameter in order are refused", "[dist][plan][error]") {
  // fc.bias; fc.weight [0, 256) and [256, 500); the rest.
  BucketPlan plan =
      plan_by_size(kModel, reverse_order(kModel), {.bytes = 1024, .first_bytes = 100}, Oversize::split);
  check_plan(plan, kModel);
  REQUIRE(plan.buckets.size() == 4);
  BucketSpec &first = plan.buckets[1], &second = plan.buckets[2];
  SECTION("a gap") {
    second.part.begin = 272;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel),
                        ContainsSubstring("bucket 2 must continue \"fc.weight\" at element 256 of 500"));
  }
  SECTION("an overlap") {
    second.part.begin = 240;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("must continue \"fc.weight\""));
  }
  SECTION("another order") {
    std::swap(first, second);
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("at element 0 of 500; got [256, 500)"));
  }
  SECTION("beyond the end") {
    second.part.end = 501;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("got [256, 501)"));
  }
  SECTION("the last part missing") {
    plan.buckets.erase(plan.buckets.begin() + 2);
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("must start at position 1"));
    plan.buckets.pop_back();
    REQUIRE_THROWS_WITH(check_plan(plan, kModel),
                        ContainsSubstring("cover 1 of 5 parameters and 256 elements of the next"));
  }
  SECTION("all of it after a part of it") {
    second = {.range = {1, 2}, .bytes = 2000, .dtype = DType::f32, .part = {}};
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("at element 256; got all of it"));
  }
  SECTION("a part that is everything") {
    plan.buckets.erase(plan.buckets.begin() + 2);
    first.part.end = 500;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("is no part"));
  }
  SECTION("a part that is nothing") {
    second.part.end = 256;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("got [256, 256)"));
  }
  SECTION("a cut off the grid") {
    first.part.end = second.part.begin = 250;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("multiple of 16 elements"));
  }
  SECTION("several parameters") {
    first.range.end = 3;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("must hold one parameter; got 2"));
  }
  SECTION("wrong bytes") {
    first.bytes = 2000;
    REQUIRE_THROWS_WITH(check_plan(plan, kModel), ContainsSubstring("holds 1024 bytes; it says 2000"));
  }
}
