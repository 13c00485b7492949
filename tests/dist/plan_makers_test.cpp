// SPDX-License-Identifier: MIT
// tests/dist/plan_makers_test.cpp - orders, caps and PyTorch's rules, on a toy and on ResNet-18.
#include "dist/plan_makers.h"

#include "models/catalog.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

const std::vector<ParameterInfo> kToy{{"conv.weight", 400, DType::f32, 4},
                                      {"bn.weight", 40, DType::f32, 1},
                                      {"bn.bias", 40, DType::f32, 1},
                                      {"fc.weight", 2000, DType::f32, 2},
                                      {"fc.bias", 20, DType::f32, 1}};

std::vector<ParameterInfo> resnet18() {
  const auto model = models::make_model("resnet18");
  std::vector<ParameterInfo> out;
  for (const auto& p : model->named_parameters())
    out.push_back({p.name, p.variable.value().bytes(), p.variable.dtype(), p.variable.dims()});
  return out;
}

// In MiB with two decimals, in launch order.
std::vector<int> hundredths_of_mib(const BucketPlan& plan) {
  std::vector<int> out;
  for (const BucketSpec& bucket : plan.buckets)
    out.push_back(static_cast<int>(100 * static_cast<double>(bucket.bytes) / kMiB + 0.5));
  return out;
}

}  // namespace

TEST_CASE("orders are what their names say", "[dist][plan]") {
  REQUIRE(make_order("reverse", kToy) == std::vector<int>{4, 3, 2, 1, 0});
  REQUIRE(make_order("forward", kToy) == std::vector<int>{0, 1, 2, 3, 4});
  REQUIRE(make_order("memory", kToy) == std::vector<int>{3, 0, 2, 1, 4});
  REQUIRE(make_order("norm_first", kToy) == std::vector<int>{4, 2, 1, 3, 0});
  REQUIRE(make_order("random:7", kToy) == make_order("random:7", kToy));
  REQUIRE(make_order("random:7", kToy) != make_order("random:8", kToy));
}

TEST_CASE("an unknown order or rule lists the choices", "[dist][plan][error]") {
  REQUIRE_THROWS_WITH(make_order("backward", kToy),
                      ContainsSubstring("choose from reverse, forward, memory, norm_first, random"));
  REQUIRE_THROWS_WITH(make_order("random", kToy), ContainsSubstring("needs a seed"));
  REQUIRE_THROWS_WITH(make_order("random:x", kToy), ContainsSubstring("needs a seed"));
  REQUIRE_THROWS_WITH(make_order("memory:1", kToy), ContainsSubstring("takes no argument"));
  REQUIRE_THROWS_WITH(plan_rule("pytorch"),
                      ContainsSubstring("choose from size, auto, torch, torch_rebuilt"));
}

TEST_CASE("the last bucket has a cap of its own, and an oversize last parameter stands alone",
          "[dist][plan]") {
  const auto plan = [](double last) {
    return plan_by_size(kToy, make_order("reverse", kToy),
                        {.bytes = 1e9, .first_bytes = 1e9, .last_bytes = last});
  };
  REQUIRE(plan(450).buckets.size() == 2);
  REQUIRE(plan(450).buckets[1].bytes == 440);
  REQUIRE(plan(10).buckets[1].bytes == 400);
  REQUIRE(plan(1e9).buckets.size() == 1);
  for (const double last : {1.0, 439.0, 440.0, 481.0, 1e9}) check_plan(plan(last), kToy);
}

TEST_CASE("PyTorch's rules cut ResNet-18 as PyTorch does", "[dist][plan]") {
  const auto parameters = resnet18();
  // Measured with torch 1.13 (bucket sizes of its DDP logger): 9.03, 32.18, 1.42 MiB, then 9.02, 25.27, 8.33.
  const BucketPlan first = plan_torch(parameters, 25 * kMiB),
                   rebuilt = plan_torch_rebuilt(parameters, 25 * kMiB);
  check_plan(first, parameters);
  check_plan(rebuilt, parameters);
  REQUIRE(hundredths_of_mib(first) == std::vector<int>{903, 3218, 142});
  REQUIRE(hundredths_of_mib(rebuilt) == std::vector<int>{902, 2527, 833});
}

TEST_CASE("our default plan of ResNet-18 is a golden list", "[dist][plan]") {
  const auto parameters = resnet18();
  const BucketPlan plan = plan_by_size(parameters, make_order("reverse", parameters), {});
  check_plan(plan, parameters);
  REQUIRE(plan.buckets.size() == 12);
  REQUIRE(plan.rule == "size cap 4 MiB, first 1 MiB");
}
