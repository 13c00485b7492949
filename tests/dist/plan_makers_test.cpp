// SPDX-License-Identifier: MIT
// tests/dist/plan_makers_test.cpp - orders, caps and PyTorch's rules, on a toy and on ResNet-18.
#include "dist/plan_makers.h"

#include <array>
#include <cmath>
#include <limits>

#include "dist/ddp.h"
#include "models/catalog.h"
#include "nn/linear.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

const std::vector<ParameterInfo> kToy{{"conv.weight", 400, DType::f32, 4},
                                      {"bn.weight", 40, DType::f32, 1},
                                      {"bn.bias", 40, DType::f32, 1},
                                      {"fc.weight", 2000, DType::f32, 2},
                                      {"fc.bias", 20, DType::f32, 1}};

using Sizes = std::vector<std::int64_t>;
constexpr double kNoCap = std::numeric_limits<double>::infinity();

// In bytes, in launch order.
Sizes sizes(const BucketPlan& plan) {
  Sizes out;
  for (const BucketSpec& bucket : plan.buckets) out.push_back(bucket.bytes);
  return out;
}

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
  const std::vector<int> observed{3, 4, 0, 2, 1};
  REQUIRE(make_order("ready", kToy, observed) == observed);
  REQUIRE(make_order("random:7", kToy) == make_order("random:7", kToy));
  REQUIRE(make_order("random:7", kToy) != make_order("random:8", kToy));
}

TEST_CASE("an unknown order or rule lists the choices", "[dist][plan][error]") {
  REQUIRE_THROWS_WITH(make_order("backward", kToy),
                      ContainsSubstring("choose from reverse, forward, memory, norm_first, random"));
  REQUIRE_THROWS_WITH(make_order("random", kToy), ContainsSubstring("needs a seed"));
  REQUIRE_THROWS_WITH(make_order("random:x", kToy), ContainsSubstring("needs a seed"));
  REQUIRE_THROWS_WITH(make_order("memory:1", kToy), ContainsSubstring("takes no argument"));
  REQUIRE_THROWS_WITH(make_order("ready", kToy), ContainsSubstring("order ready: was not observed"));
  for (const std::vector<int>& bad :
       {std::vector<int>{0, 1}, std::vector<int>{0, 1, 2, 3, 3}, std::vector<int>{0, 1, 2, 3, 5}})
    REQUIRE_THROWS_WITH(make_order("ready", kToy, bad), ContainsSubstring("each of the 5 parameters once"));
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
  REQUIRE(hundredths_of_mib(plan) == std::vector<int>{2, 900, 0, 900, 51, 900, 0, 450, 225, 238, 394, 201});
}

TEST_CASE("a list gives each bucket its own cap, the last entry from there on", "[dist][plan]") {
  const auto plan = [](std::vector<double> list, double last = kNoCap) {
    return plan_by_size(kToy, make_order("reverse", kToy), {.last_bytes = last, .list = std::move(list)});
  };
  REQUIRE(sizes(plan({20, 2040, 440})) == Sizes{20, 2040, 440});
  REQUIRE(sizes(plan({20, 2039, 440})) == Sizes{20, 2000, 80, 400});
  REQUIRE(sizes(plan({1})) == Sizes{20, 2000, 40, 40, 400});
  REQUIRE(sizes(plan({1e9})) == Sizes{2500});
  REQUIRE(sizes(plan({2020, 1e9}, 440)) == Sizes{2020, 40, 440});
  REQUIRE(plan({kMiB, 2 * kMiB}).rule == "size caps 1 2 MiB");
}

TEST_CASE("caps and smallest sizes that are no sizes are refused", "[dist][plan][A06][error]") {
  const double bad = GENERATE(0.0, -1.0, std::nan(""));
  REQUIRE_THROWS_WITH(plan_by_size(kToy, make_order("reverse", kToy), {.list = {1, bad}}),
                      ContainsSubstring("bucket caps must be positive"));
  if (bad != 0)
    REQUIRE_THROWS_WITH(make_plan(kToy, {.caps = {.min_bytes = bad}}),
                        ContainsSubstring("smallest bucket must have 0 bytes or more"));
}

TEST_CASE("a bucket below the smallest size joins the next, the last of all the one before", "[dist][plan]") {
  const auto joined = [](double min_bytes) {
    BucketPlan plan = coalesce_small(plan_per_parameter(kToy, make_order("reverse", kToy)), min_bytes);
    check_plan(plan, kToy);
    return sizes(plan);
  };
  REQUIRE(joined(0) == Sizes{20, 2000, 40, 40, 400});
  REQUIRE(joined(20) == Sizes{20, 2000, 40, 40, 400});
  REQUIRE(joined(21) == Sizes{2020, 40, 40, 400});
  REQUIRE(joined(41) == Sizes{2020, 80, 400});
  REQUIRE(joined(401) == Sizes{2020, 480});
  REQUIRE(joined(481) == Sizes{2500});
  REQUIRE(joined(kNoCap) == Sizes{2500});
}

TEST_CASE("a small bucket joins its own dtype only, and never a part", "[dist][plan]") {
  const auto joined = [](const std::vector<ParameterInfo>& model, const BucketCaps& caps) {
    BucketPlan plan = coalesce_small(plan_by_size(model, make_order("forward", model), caps, Oversize::split),
                                     caps.min_bytes);
    check_plan(plan, model);
    return sizes(plan);
  };
  const std::vector<ParameterInfo> mixed{{"a", 400, DType::f32}, {"b", 20, DType::f32},
                                         {"c", 20, DType::f64},  {"d", 24, DType::f64},
                                         {"e", 20, DType::f32},  {"f", 8, DType::bf16}};
  // b joins a, for c is of another dtype; c joins d; e and f have nobody.
  REQUIRE(joined(mixed, {.list = {400, 20, 20, 24, 20}, .min_bytes = 100}) == Sizes{420, 44, 20, 8});
  const std::vector<ParameterInfo> parted{
      {"a", 20, DType::f32}, {"b", 40, DType::f32}, {"c", 256, DType::f32}, {"d", 20, DType::f32}};
  REQUIRE(joined(parted, {.list = {20, 40, 128, 128, 20}, .min_bytes = 61}) == Sizes{60, 128, 128, 20});
}

TEST_CASE("every rule and every strategy's plan heeds the smallest size", "[dist][plan]") {
  const auto parameters = resnet18();
  const double least = 100 * 1024;
  for (const char* rule : {"size", "auto", "torch", "torch_rebuilt"}) {
    const PlanOptions options{.rule = rule, .caps = {.bytes = 4096, .first_bytes = 4096, .min_bytes = least}};
    for (const BucketSpec& bucket : make_plan(parameters, options).buckets)
      REQUIRE(static_cast<double>(bucket.bytes) >= least);
    REQUIRE_THAT(make_plan(parameters, options).rule, ContainsSubstring(", at least 0.09766 MiB"));
  }
  for (const Strategy& strategy : strategies())
    for (const BucketSpec& bucket : strategy.plan(parameters, {.caps = {.min_bytes = least}}).buckets)
      REQUIRE(static_cast<double>(bucket.bytes) >= least);
}

TEST_CASE("a split plan cuts what is over its cap into equal parts of at most the cap", "[dist][plan]") {
  const auto plan = [](const BucketCaps& caps) {
    BucketPlan out = plan_by_size(kToy, make_order("reverse", kToy), caps, Oversize::split);
    check_plan(out, kToy);
    return out;
  };
  // fc.weight has 500 elements: under 1024 bytes in two parts, [0, 256) and [256, 500); under 800 in three.
  REQUIRE(sizes(plan({.bytes = 1024, .first_bytes = 100})) == Sizes{20, 1024, 976, 480});
  REQUIRE(sizes(plan({.bytes = 800, .first_bytes = 100})) == Sizes{20, 704, 704, 592, 480});
  REQUIRE(plan({.bytes = 1024, .first_bytes = 100}).buckets[2].part == ElementRange{256, 500});
  REQUIRE(plan({.bytes = 1024, .first_bytes = 100}).rule.ends_with(", split"));
  // Nothing to split: the plan is the other one.
  REQUIRE(sizes(plan({.bytes = 2000, .first_bytes = 100})) == Sizes{20, 2000, 480});
  // Each part is a bucket of the list.
  REQUIRE(sizes(plan({.list = {20, 256, 1e9}})) == Sizes{20, 256, 1744, 480});
  // Caps below 16 elements count as 16; what has no more is not cut.
  const BucketPlan least = plan({.bytes = 1, .first_bytes = 1});
  for (const BucketSpec& bucket : least.buckets) REQUIRE(bucket.bytes <= 64);
  REQUIRE(least.buckets.size() == 1 + 32 + 1 + 1 + 7);
}

TEST_CASE("a split plan keeps the last bucket within its cap too", "[dist][plan]") {
  const auto last_of = [](double cap, double last) {
    const BucketPlan plan =
        plan_by_size(kToy, make_order("reverse", kToy),
                     {.bytes = cap, .first_bytes = cap, .last_bytes = last}, Oversize::split);
    check_plan(plan, kToy);
    return plan.buckets.back();
  };
  // conv.weight, 100 elements, is over the last cap: its head is cut by the usual caps.
  REQUIRE(last_of(1e9, 128).part == ElementRange{80, 100});
  REQUIRE(last_of(128, 64).part == ElementRange{96, 100});
  REQUIRE(last_of(1e9, 1).part == ElementRange{96, 100});
  // It fits: the last bucket is as without split, whatever the others' cap.
  REQUIRE(last_of(64, 440).bytes == 440);
  REQUIRE(!last_of(64, 440).is_part());
}

TEST_CASE("ResNet-18 split at 4 MiB has no bucket above it", "[dist][plan]") {
  const auto parameters = resnet18();
  const BucketPlan plan = make_plan(parameters, {.split = true});
  check_plan(plan, parameters);
  REQUIRE(hundredths_of_mib(plan) == std::vector<int>{2, 300, 300, 300, 0, 300, 300, 300, 51, 300, 300, 300,
                                                      0, 225, 225, 225, 238, 394, 201});
}

TEST_CASE("zero-element parameters sit in a neighbour's bucket under every rule", "[dist][plan]") {
  auto model = kToy;
  model.insert(model.begin(), {"empty.first", 0, DType::f32, 1});
  model.insert(model.begin() + 3, {"empty.middle", 0, DType::f32, 2});
  model.push_back({"empty.last", 0, DType::f32, 1});
  std::vector<BucketPlan> plans;
  for (const char* rule : {"size", "torch", "torch_rebuilt"})
    plans.push_back(make_plan(model, {.rule = rule, .caps = {.bytes = 1, .first_bytes = 1}}));
  for (const Strategy& strategy : strategies()) plans.push_back(strategy.plan(model, {}));
  for (const BucketPlan& plan : plans) {
    check_plan(plan, model);
    for (const BucketSpec& bucket : plan.buckets) REQUIRE(bucket.bytes > 0);
  }
  REQUIRE(sizes(plans[0]) == Sizes{20, 2000, 40, 40, 400});
}

TEST_CASE("a list of mixed dtypes is cut wherever the dtype changes, under every rule", "[dist][plan]") {
  std::vector<ParameterInfo> model;
  const std::array dtypes{DType::f32, DType::bf16, DType::f64, DType::f64, DType::bf16, DType::f32};
  for (const DType dtype : dtypes) model.push_back({str("p", model.size()), 64 * size_of(dtype), dtype, 2});
  for (const char* rule : {"size", "auto", "torch", "torch_rebuilt"}) {
    const BucketPlan plan =
        make_plan(model, {.rule = rule, .caps = {.bytes = 1e9, .first_bytes = 1e9, .min_bytes = 1e9}});
    check_plan(plan, model);
    REQUIRE(sizes(plan) == Sizes{256, 128, 1024, 128, 256});
  }
  const BucketPlan split = make_plan(model, {.caps = {.bytes = 256, .first_bytes = 256}, .split = true});
  check_plan(split, model);
  REQUIRE(sizes(split) == Sizes{256, 128, 256, 256, 256, 256, 128, 256});
}

TEST_CASE("frozen parameters are not in a plan, and tied ones are in it once", "[dist][plan][ranks]") {
  class Tied : public nn::Module {
   public:
    Tied() : a(4, 4), b(a.weight), frozen(4, 4) {  // b has no bias.
      register_module("a", a);
      register_module("b", b);
      register_module("frozen", frozen);
      for (auto& [name, parameter] : frozen.named_parameters()) parameter.set_requires_grad(false);
    }
    Variable forward(const Variable& x) override { return x; }
    nn::Linear a, b, frozen;
  };
  test::for_each_world([](ProcessGroup& group) {
    Tied model;
    const Ddp ddp(model.named_parameters(), {}, group, {.strategy = "per_parameter"});
    std::string names;
    for (const int index : ddp.plan().order)
      names += ddp.parameter_infos()[static_cast<std::size_t>(index)].name + " ";
    test::require(names == "a.bias a.weight ", names);
  });
}

TEST_CASE("rule file takes the plan of its text as it stands", "[dist][plan]") {
  const BucketPlan plan = plan_by_size(kToy, make_order("norm_first", kToy), {.bytes = 500});
  PlanOptions options{.rule = "file", .caps = {.min_bytes = 1e9}};
  options.json = plan_to_json(plan, kToy);
  REQUIRE(make_plan(kToy, options) == plan);
  REQUIRE_THROWS_WITH(make_plan(kToy, {.rule = "file"}),
                      ContainsSubstring("plan: rule file needs the text of a plan file"));
}
