// SPDX-License-Identifier: MIT
// dist/plan_makers.cpp - orders, caps, PyTorch's rules, and their name tables.
#include "dist/plan_makers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include "core/choices.h"
#include "core/rng.h"

namespace brigade::dist {
namespace {

using Parameters = std::span<const ParameterInfo>;

// Parameter by index.
const ParameterInfo& info(Parameters parameters, int index) {
  return parameters[static_cast<std::size_t>(index)];
}

// Cuts `order` wherever `closes(plan so far, next parameter)` says so, and where the dtype changes.
template <class Closes>
BucketPlan cut(std::string rule, Parameters parameters, std::vector<int> order, const Closes& closes) {
  BucketPlan plan{.rule = std::move(rule), .order = std::move(order), .buckets = {}};
  for (int position = 0; position < static_cast<int>(plan.order.size()); ++position) {
    const ParameterInfo& next = info(parameters, plan.order[static_cast<std::size_t>(position)]);
    const bool open = !plan.buckets.empty();
    if (!open || plan.buckets.back().dtype != next.dtype || closes(plan, next))
      plan.buckets.push_back({.range = {position, position}, .bytes = 0, .dtype = next.dtype});
    BucketSpec& bucket = plan.buckets.back();
    bucket.range.end = position + 1;
    bucket.bytes += next.bytes;
  }
  return plan;
}

std::vector<int> forward(Parameters parameters, std::string_view) {
  std::vector<int> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int> reverse(Parameters parameters, std::string_view) {
  std::vector<int> order = forward(parameters, {});
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<int> memory(Parameters parameters, std::string_view) {
  std::vector<int> order = reverse(parameters, {});
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return info(parameters, a).bytes > info(parameters, b).bytes; });
  return order;
}

std::vector<int> norm_first(Parameters parameters, std::string_view) {
  std::vector<int> order = reverse(parameters, {});
  std::stable_partition(order.begin(), order.end(), [&](int i) { return info(parameters, i).dims < 2; });
  return order;
}

// Fisher and Yates over Philox: the same order on every rank and machine.
std::vector<int> random(Parameters parameters, std::string_view argument) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(argument.data(), argument.data() + argument.size(), seed);
  BRIGADE_CHECK(error == std::errc() && end == argument.data() + argument.size(),
                "order random: needs a seed, as in random:7; got \"random:", argument, "\"");
  std::vector<int> order = forward(parameters, {});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[philox(seed, 0, i)[0] % i]);
  return order;
}

struct Order {
  std::string_view name;
  std::vector<int> (*make)(Parameters parameters, std::string_view argument);
};
constexpr std::array kOrders{Order{"reverse", reverse}, Order{"forward", forward}, Order{"memory", memory},
                             Order{"norm_first", norm_first}, Order{"random", random}};

void check_cap(double cap) {
  BRIGADE_CHECK(!std::isnan(cap) && cap > 0, "plan: bucket caps must be positive; got ", cap, " bytes");
}

// Buckets in the order in which PyTorch fills them: one closes as soon as it has reached its cap.
BucketPlan fill_like_torch(Parameters parameters, std::vector<int> order, double cap_bytes) {
  check_cap(cap_bytes);
  return cut({}, parameters, std::move(order), [&](const BucketPlan& plan, const ParameterInfo&) {
    const double cap = plan.buckets.size() == 1 ? 1 * kMiB : cap_bytes;
    return static_cast<double>(plan.buckets.back().bytes) >= cap;
  });
}

BucketPlan by_size(Parameters parameters, const PlanOptions& options) {
  return plan_by_size(parameters, make_order(options.order, parameters), options.caps);
}
BucketPlan torch(Parameters parameters, const PlanOptions& options) {
  return plan_torch(parameters, options.caps.bytes);
}
BucketPlan torch_rebuilt(Parameters parameters, const PlanOptions& options) {
  return plan_torch_rebuilt(parameters, options.caps.bytes);
}

constexpr std::array kRules{
    PlanRule{"size", "cut by --bucket-mb and --first-bucket-mb", by_size},
    PlanRule{"auto", "planned from measurements while training; starts with size", by_size, true},
    PlanRule{"torch", "PyTorch's plan for its first step; its cap is --bucket-mb", torch},
    PlanRule{"torch_rebuilt", "the plan PyTorch keeps afterwards", torch_rebuilt},
};

}  // namespace

double cap_from_mib(std::string_view flag, double mebibytes) {
  BRIGADE_CHECK(!std::isnan(mebibytes) && mebibytes > 0, flag, ": must be a positive number of MiB; got ",
                mebibytes);
  return mebibytes * kMiB;
}

std::vector<int> make_order(std::string_view name, Parameters parameters) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const Order& order = choose("order", name.substr(0, colon), kOrders);
  BRIGADE_CHECK(colon == name.size() || order.name == "random", "order ", order.name,
                ": takes no argument; got \"", name, "\"");
  return order.make(parameters, name.substr(std::min(colon + 1, name.size())));
}

std::vector<std::string_view> order_names() { return names(kOrders); }

BucketPlan plan_by_size(Parameters parameters, std::vector<int> order, const BucketCaps& caps) {
  for (const double cap : {caps.bytes, caps.first_bytes, caps.last_bytes}) check_cap(cap);
  // The last bucket is what fits its cap from the end; it starts at position `tail`.
  std::size_t tail = order.size();
  if (std::isfinite(caps.last_bytes)) {
    double bytes = 0;
    while (tail > 0 &&
           (bytes += static_cast<double>(info(parameters, order[tail - 1]).bytes)) <= caps.last_bytes)
      --tail;
    if (tail == order.size() && tail > 0)
      --tail;  // Never split: an oversize parameter is the last bucket alone.
  }
  std::string rule =
      fmt::format("size cap {:.4g} MiB, first {:.4g} MiB", caps.bytes / kMiB, caps.first_bytes / kMiB);
  if (std::isfinite(caps.last_bytes)) rule += fmt::format(", last {:.4g} MiB", caps.last_bytes / kMiB);
  return cut(std::move(rule), parameters, std::move(order),
             [&](const BucketPlan& plan, const ParameterInfo& next) {
               const auto position = static_cast<std::size_t>(plan.buckets.back().range.end);
               if (position >= tail) return position == tail;
               const double cap = plan.buckets.size() == 1 ? caps.first_bytes : caps.bytes;
               return static_cast<double>(plan.buckets.back().bytes + next.bytes) > cap;
             });
}

BucketPlan plan_torch(Parameters parameters, double cap_bytes) {
  const BucketPlan filled = fill_like_torch(parameters, forward(parameters, {}), cap_bytes);
  // Launched from the last bucket to the first; inside a bucket the order does not matter, so that the flat order is
  // simply the reverse.
  std::vector<std::int32_t> ends;
  const int count = static_cast<int>(parameters.size());
  for (auto bucket = filled.buckets.rbegin(); bucket != filled.buckets.rend(); ++bucket)
    ends.push_back(count - bucket->range.begin);
  return plan_from_ends(parameters, reverse(parameters, {}), ends,
                        fmt::format("torch, cap {:.4g} MiB", cap_bytes / kMiB));
}

BucketPlan plan_torch_rebuilt(Parameters parameters, double cap_bytes) {
  BucketPlan plan = fill_like_torch(parameters, reverse(parameters, {}), cap_bytes);
  plan.rule = fmt::format("torch after its rebuild, cap {:.4g} MiB", cap_bytes / kMiB);
  return plan;
}

BucketPlan plan_per_parameter(Parameters parameters, std::vector<int> order) {
  return cut("one parameter a bucket", parameters, std::move(order),
             [](const BucketPlan&, const ParameterInfo&) { return true; });
}

BucketPlan plan_flat(Parameters parameters, std::vector<int> order) {
  return cut("everything in one bucket", parameters, std::move(order),
             [](const BucketPlan&, const ParameterInfo&) { return false; });
}

std::span<const PlanRule> plan_rules() { return kRules; }
const PlanRule& plan_rule(std::string_view name) { return choose("plan", name, kRules); }

}  // namespace brigade::dist
