// SPDX-License-Identifier: MIT
// dist/bucket_plan.cpp - plans checked, and plans as tables. Who makes them: dist/plan_makers.cpp. As JSON:
// dist/plan_json.cpp.
#include "dist/bucket_plan.h"

#include <fmt/format.h>

namespace brigade::dist {
namespace {

// Parameter by index.
const ParameterInfo& info(std::span<const ParameterInfo> parameters, int index) {
  return parameters[static_cast<std::size_t>(index)];
}

// Where a walk over the buckets has come to: `position` of the flat order, of whose parameter earlier buckets hold the
// first `covered` elements.
struct Walk {
  int position = 0;
  std::int64_t covered = 0;
};

// Checks that `bucket`, which is a part, is the next one of its parameter, and steps over it. Returns its bytes.
std::int64_t step_over_part(const BucketSpec& bucket, std::size_t b, const ParameterInfo& p, Walk& at) {
  const std::int64_t item = size_of(p.dtype), elements = p.bytes / item;
  BRIGADE_CHECK(bucket.range.count() == 1, "plan: bucket ", b, " is a part and must hold one parameter; got ",
                bucket.range.count());
  BRIGADE_CHECK(
      bucket.part.begin == at.covered && bucket.part.end > at.covered && bucket.part.end <= elements,
      "plan: bucket ", b, " must continue \"", p.name, "\" at element ", at.covered, " of ", elements,
      "; got [", bucket.part.begin, ", ", bucket.part.end, ")");
  BRIGADE_CHECK(bucket.part.count() < elements, "plan: bucket ", b, " holds all of \"", p.name,
                "\" and is no part");
  BRIGADE_CHECK(bucket.part.end == elements || bucket.part.end % kPartMultiple == 0, "plan: bucket ", b,
                " must end at a multiple of ", kPartMultiple, " elements of \"", p.name, "\"; got ",
                bucket.part.end);
  at.covered = bucket.part.end;
  if (at.covered == elements) at = {at.position + 1, 0};
  return bucket.part.count() * item;
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
  Walk at;
  const int count = static_cast<int>(plan.order.size());
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const BucketSpec& bucket = plan.buckets[b];
    BRIGADE_CHECK(
        bucket.range.begin == at.position && bucket.range.end > at.position && bucket.range.end <= count,
        "plan: bucket ", b, " must start at position ", at.position, " and hold something; got [",
        bucket.range.begin, ", ", bucket.range.end, ")");
    for (int i = bucket.range.begin; i < bucket.range.end; ++i) {
      const ParameterInfo& p = info(parameters, plan.order[static_cast<std::size_t>(i)]);
      BRIGADE_CHECK(p.dtype == bucket.dtype, "plan: bucket ", b, " is ", bucket.dtype, "; \"", p.name,
                    "\" is ", p.dtype);
    }
    const ParameterInfo& first = info(parameters, plan.order[static_cast<std::size_t>(at.position)]);
    std::int64_t bytes = 0;
    if (bucket.part != ElementRange()) {
      bytes = step_over_part(bucket, b, first, at);
    } else {
      BRIGADE_CHECK(at.covered == 0, "plan: bucket ", b, " must continue \"", first.name, "\" at element ",
                    at.covered, "; got all of it");
      for (; at.position < bucket.range.end; ++at.position)
        bytes += info(parameters, plan.order[static_cast<std::size_t>(at.position)]).bytes;
    }
    BRIGADE_CHECK(bytes == bucket.bytes, "plan: bucket ", b, " holds ", bytes, " bytes; it says ",
                  bucket.bytes);
  }
  BRIGADE_CHECK(at.position == count && at.covered == 0, "plan: its buckets cover ", at.position, " of ",
                count, " parameters",
                at.covered == 0 ? std::string() : str(" and ", at.covered, " elements of the next"));
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
    if (bucket.is_part()) out += fmt::format(" [{}, {})", bucket.part.begin, bucket.part.end);
    if (bucket.range.count() > 1) out += " ... " + name_at(bucket.range.end - 1);
    out += '\n';
    total += bucket.bytes;
  }
  return out + fmt::format("{:>6}  {:>6}  {:>10.3f}\n", "all", plan.order.size(),
                           static_cast<double>(total) / kMiB);
}

}  // namespace brigade::dist
