// SPDX-License-Identifier: MIT
// dist/bucket_plan.cpp - plans checked, and plans as text. Who makes them: dist/plan_makers.cpp.
#include "dist/bucket_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace brigade::dist {
namespace {

// Parameter by index.
const ParameterInfo& info(std::span<const ParameterInfo> parameters, int index) {
  return parameters[static_cast<std::size_t>(index)];
}

}  // namespace

BucketPlan plan_from_ends(std::span<const ParameterInfo> parameters, std::vector<int> order,
                          std::span<const std::int32_t> ends, std::string rule) {
  BucketPlan plan{.rule = std::move(rule), .order = std::move(order), .buckets = {}};
  int begin = 0;
  for (const std::int32_t end : ends) {
    BRIGADE_CHECK(end > begin && end <= static_cast<int>(plan.order.size()),
                  "plan: buckets must end in ascending order, at most at ", plan.order.size(), "; got ", end,
                  " after ", begin);
    BucketSpec bucket{.range = {begin, end},
                      .bytes = 0,
                      .dtype = info(parameters, plan.order[static_cast<std::size_t>(begin)]).dtype};
    for (; begin < end; ++begin)
      bucket.bytes += info(parameters, plan.order[static_cast<std::size_t>(begin)]).bytes;
    plan.buckets.push_back(bucket);
  }
  check_plan(plan, parameters);
  return plan;
}

void check_plan(const BucketPlan& plan, std::span<const ParameterInfo> parameters) {
  BRIGADE_CHECK(plan.order.size() == parameters.size(), "plan: needs all ", parameters.size(),
                " parameters; got ", plan.order.size());
  std::vector<bool> seen(parameters.size());
  for (const int index : plan.order) {
    BRIGADE_CHECK(index >= 0 && index < static_cast<int>(parameters.size()), "plan: no parameter has index ",
                  index);
    BRIGADE_CHECK(!seen[static_cast<std::size_t>(index)], "plan: parameter \"", info(parameters, index).name,
                  "\" is in it twice");
    seen[static_cast<std::size_t>(index)] = true;
  }
  int next = 0;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const BucketSpec& bucket = plan.buckets[b];
    BRIGADE_CHECK(bucket.range.begin == next && bucket.range.end > next &&
                      bucket.range.end <= static_cast<int>(plan.order.size()),
                  "plan: bucket ", b, " must start at position ", next, " and hold something; got [",
                  bucket.range.begin, ", ", bucket.range.end, ")");
    std::int64_t bytes = 0;
    for (; next < bucket.range.end; ++next) {
      const ParameterInfo& p = info(parameters, plan.order[static_cast<std::size_t>(next)]);
      BRIGADE_CHECK(p.dtype == bucket.dtype, "plan: bucket ", b, " is ", bucket.dtype, "; \"", p.name,
                    "\" is ", p.dtype);
      bytes += p.bytes;
    }
    BRIGADE_CHECK(bytes == bucket.bytes, "plan: bucket ", b, " holds ", bytes, " bytes; it says ",
                  bucket.bytes);
  }
  BRIGADE_CHECK(next == static_cast<int>(plan.order.size()), "plan: its buckets cover ", next, " of ",
                plan.order.size(), " parameters");
}

std::string plan_table(const BucketPlan& plan, std::span<const ParameterInfo> parameters) {
  std::string out = fmt::format("bucket plan: {}\n{:>6}  {:>6}  {:>10}  {:<5}  {}\n", plan.rule, "bucket",
                                "params", "MiB", "dtype", "first ... last parameter");
  std::int64_t total = 0;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const BucketSpec& bucket = plan.buckets[b];
    const auto name_at = [&](int position) {
      return info(parameters, plan.order[static_cast<std::size_t>(position)]).name;
    };
    out += fmt::format("{:>6}  {:>6}  {:>10.3f}  {:<5}  {}", b, bucket.range.count(),
                       static_cast<double>(bucket.bytes) / kMiB, name(bucket.dtype),
                       name_at(bucket.range.begin));
    if (bucket.range.count() > 1) out += " ... " + name_at(bucket.range.end - 1);
    out += '\n';
    total += bucket.bytes;
  }
  return out + fmt::format("{:>6}  {:>6}  {:>10.3f}\n", "all", plan.order.size(),
                           static_cast<double>(total) / kMiB);
}

std::string plan_to_json(const BucketPlan& plan, std::span<const ParameterInfo> parameters) {
  nlohmann::ordered_json json{{"rule", plan.rule}, {"buckets", nlohmann::ordered_json::array()}};
  for (const BucketSpec& bucket : plan.buckets) {
    nlohmann::ordered_json names = nlohmann::ordered_json::array();
    for (int i = bucket.range.begin; i < bucket.range.end; ++i)
      names.push_back(info(parameters, plan.order[static_cast<std::size_t>(i)]).name);
    json["buckets"].push_back(
        {{"bytes", bucket.bytes}, {"dtype", name(bucket.dtype)}, {"parameters", names}});
  }
  return json.dump(1) + "\n";
}

BucketPlan plan_from_json(const std::string& text, std::span<const ParameterInfo> parameters) {
  std::unordered_map<std::string, int> index;
  for (std::size_t i = 0; i < parameters.size(); ++i) index[parameters[i].name] = static_cast<int>(i);
  BucketPlan plan;
  try {
    const auto json = nlohmann::json::parse(text);
    plan.rule = json.at("rule").get<std::string>();
    for (const auto& bucket : json.at("buckets")) {
      BucketSpec spec{.range = {static_cast<int>(plan.order.size()), 0},
                      .bytes = bucket.at("bytes").get<std::int64_t>(),
                      .dtype = DType::f32};
      const auto dtype_name = bucket.at("dtype").get<std::string>();
      const auto known =
          std::find_if(kAllDTypes.begin(), kAllDTypes.end(), [&](DType d) { return name(d) == dtype_name; });
      BRIGADE_CHECK(known != kAllDTypes.end(), "plan: unknown dtype \"", dtype_name, "\"");
      spec.dtype = *known;
      for (const auto& parameter : bucket.at("parameters")) {
        const auto found = index.find(parameter.get<std::string>());
        BRIGADE_CHECK(found != index.end(), "plan: the model has no parameter \"",
                      parameter.get<std::string>(), "\"");
        plan.order.push_back(found->second);
      }
      spec.range.end = static_cast<int>(plan.order.size());
      plan.buckets.push_back(spec);
    }
  } catch (const nlohmann::json::exception& error) {
    fail(str("plan: not a bucket plan; ", error.what()));
  }
  check_plan(plan, parameters);
  return plan;
}

}  // namespace brigade::dist
