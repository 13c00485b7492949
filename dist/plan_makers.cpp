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

// Whether the parameter `next` cannot go into the plan's last bucket, whatever the caps.
bool must_open(const BucketPlan& plan, const ParameterInfo& next) {
  return plan.buckets.empty() || plan.buckets.back().is_part() || plan.buckets.back().dtype != next.dtype;
}

// Adds the parameter at `position` to a new bucket or to the last one.
void add(BucketPlan& plan, int position, const ParameterInfo& next, bool opens) {
  if (opens)
    plan.buckets.push_back({.range = {position, position}, .bytes = 0, .dtype = next.dtype, .part = {}});
  BucketSpec& bucket = plan.buckets.back();
  bucket.range.end = position + 1;
  bucket.bytes += next.bytes;
}

// Cuts `order` wherever `closes(plan so far, next parameter)` says so, and where it must.
template <class Closes>
BucketPlan cut(std::string rule, Parameters parameters, std::vector<int> order, const Closes& closes) {
  BucketPlan plan{.rule = std::move(rule), .order = std::move(order), .buckets = {}};
  for (int position = 0; position < static_cast<int>(plan.order.size()); ++position) {
    const ParameterInfo& next = info(parameters, plan.order[static_cast<std::size_t>(position)]);
    add(plan, position, next, must_open(plan, next) || closes(plan, next));
  }
  return plan;
}

// What an order may need beside the parameters.
struct OrderRequest {
  std::string_view argument = {};      // What follows "name:".
  std::span<const int> observed = {};  // PlanOptions::observed
};

std::vector<int> forward(Parameters parameters, const OrderRequest& = {}) {
  std::vector<int> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int> reverse(Parameters parameters, const OrderRequest& = {}) {
  std::vector<int> order = forward(parameters);
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<int> memory(Parameters parameters, const OrderRequest&) {
  std::vector<int> order = reverse(parameters);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return info(parameters, a).bytes > info(parameters, b).bytes; });
  return order;
}

std::vector<int> norm_first(Parameters parameters, const OrderRequest&) {
  std::vector<int> order = reverse(parameters);
  std::stable_partition(order.begin(), order.end(), [&](int i) { return info(parameters, i).dims < 2; });
  return order;
}

// Fisher and Yates over Philox: the same order on every rank and machine.
std::vector<int> random(Parameters parameters, const OrderRequest& request) {
  const std::string_view argument = request.argument;
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(argument.data(), argument.data() + argument.size(), seed);
  BRIGADE_CHECK(error == std::errc() && end == argument.data() + argument.size(),
                "order random: needs a seed, as in random:7; got \"random:", argument, "\"");
  std::vector<int> order = forward(parameters);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[philox(seed, 0, i)[0] % i]);
  return order;
}

std::vector<int> ready(Parameters parameters, const OrderRequest& request) {
  const std::span<const int> observed = request.observed;
  BRIGADE_CHECK(parameters.empty() || !observed.empty(),
                "order ready: was not observed; run one backward under observe_ready_order first");
  std::vector<int> order(observed.begin(), observed.end()), sorted = order;
  std::sort(sorted.begin(), sorted.end());
  BRIGADE_CHECK(sorted == forward(parameters), "order ready: must list each of the ", parameters.size(),
                " parameters once; got ", observed.size(), " indices that do not");
  return order;
}

struct Order {
  std::string_view name;
  std::vector<int> (*make)(Parameters parameters, const OrderRequest& request);
};
constexpr std::array kOrders{Order{"reverse", reverse}, Order{"forward", forward},
                             Order{"memory", memory},   Order{"norm_first", norm_first},
                             Order{"random", random},   Order{"ready", ready}};

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

void check_caps(const BucketCaps& caps) {
  for (const double cap : {caps.bytes, caps.first_bytes, caps.last_bytes}) check_cap(cap);
  for (const double cap : caps.list) check_cap(cap);
}

// The cap of the bucket that launches as number `index`.
double cap_at(const BucketCaps& caps, std::size_t index) {
  if (!caps.list.empty()) return caps.list[std::min(index, caps.list.size() - 1)];
  return index == 0 ? caps.first_bytes : caps.bytes;
}

// Where the last bucket starts: it is what fits its cap from the end.
int last_bucket_start(Parameters parameters, const std::vector<int>& order, double cap) {
  int start = static_cast<int>(order.size());
  if (std::isinf(cap) || order.empty()) return start;
  double bytes = 0;
  const auto bytes_at = [&](int position) {
    return static_cast<double>(info(parameters, order[static_cast<std::size_t>(position)]).bytes);
  };
  while (start > 0 && (bytes += bytes_at(start - 1)) <= cap) --start;
  return std::min(start, static_cast<int>(order.size()) - 1);  // An oversize parameter is the last bucket.
}

std::string text_of(const BucketCaps& caps, Oversize oversize) {
  std::string text;
  if (caps.list.empty()) {
    text = fmt::format("size cap {:.4g} MiB, first {:.4g} MiB", caps.bytes / kMiB, caps.first_bytes / kMiB);
  } else {
    text = "size caps";
    for (const double cap : caps.list) text += fmt::format(" {:.4g}", cap / kMiB);
    text += " MiB";
  }
  if (std::isfinite(caps.last_bytes)) text += fmt::format(", last {:.4g} MiB", caps.last_bytes / kMiB);
  return oversize == Oversize::split ? text + ", split" : text;
}

std::int64_t round_up(std::int64_t elements) {
  return (elements + kPartMultiple - 1) / kPartMultiple * kPartMultiple;
}

// How many elements a part may have under a cap.
std::int64_t elements_under(double cap, const ParameterInfo& p) {
  const double item = static_cast<double>(size_of(p.dtype));
  const double most = std::min(cap, static_cast<double>(p.bytes)) / item;
  return std::max(static_cast<std::int64_t>(most) / kPartMultiple, std::int64_t{1}) * kPartMultiple;
}

// Adds elements `all` of the parameter at `position` as parts, as equal as the caps of their buckets allow.
template <class CapAt>
void add_parts(BucketPlan& plan, int position, const ParameterInfo& p, ElementRange all, const CapAt& cap) {
  const std::int64_t item = size_of(p.dtype), elements = p.bytes / item;
  while (all.count() > 0) {
    const std::int64_t most = elements_under(cap(plan.buckets.size()), p);
    const std::int64_t pieces = (all.count() + most - 1) / most;
    const std::int64_t share = (all.count() + pieces - 1) / pieces;
    const std::int64_t size = std::min(all.count(), round_up(share));
    BucketSpec bucket{.range = {position, position + 1}, .bytes = size * item, .dtype = p.dtype, .part = {}};
    if (size < elements) bucket.part = {all.begin, all.begin + size};  // Tiny caps: nothing to split.
    plan.buckets.push_back(bucket);
    all.begin += size;
  }
}

BucketPlan by_size(Parameters parameters, const PlanOptions& options) {
  return plan_by_size(parameters, make_order(options.order, parameters, options.observed), options.caps,
                      options.split ? Oversize::split : Oversize::alone);
}
BucketPlan torch(Parameters parameters, const PlanOptions& options) {
  return plan_torch(parameters, options.caps.bytes);
}
BucketPlan torch_rebuilt(Parameters parameters, const PlanOptions& options) {
  return plan_torch_rebuilt(parameters, options.caps.bytes);
}
BucketPlan from_file(Parameters parameters, const PlanOptions& options) {
  BRIGADE_CHECK(!options.json.empty(), "plan: rule file needs the text of a plan file; got none");
  return plan_from_json(options.json, parameters);
}

BucketPlan start_of_auto(Parameters parameters, const PlanOptions& options) {
  return options.json.empty() ? coalesce_small(by_size(parameters, options), options.caps.min_bytes)
                              : from_file(parameters, options);
}

constexpr std::array kRules{
    PlanRule{"size", "cut by --bucket-mb and --first-bucket-mb", by_size},
    PlanRule{"auto", "planned from measurements while training; starts with size", start_of_auto, true},
    PlanRule{"torch", "PyTorch's plan for its first step; its cap is --bucket-mb", torch},
    PlanRule{"torch_rebuilt", "the plan PyTorch keeps afterwards", torch_rebuilt},
    PlanRule{"file", "a plan saved as JSON, taken as it stands", from_file, false, true},
};

}  // namespace

double cap_from_mib(std::string_view flag, double mebibytes) {
  BRIGADE_CHECK(!std::isnan(mebibytes) && mebibytes > 0, flag, ": must be a positive number of MiB; got ",
                mebibytes);
  return mebibytes * kMiB;
}

std::vector<int> make_order(std::string_view name, Parameters parameters, std::span<const int> observed) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const Order& order = choose("order", name.substr(0, colon), kOrders);
  BRIGADE_CHECK(colon == name.size() || order.name == "random", "order ", order.name,
                ": takes no argument; got \"", name, "\"");
  return order.make(parameters,
                    {.argument = name.substr(std::min(colon + 1, name.size())), .observed = observed});
}

std::vector<std::string_view> order_names() { return names(kOrders); }

BucketPlan plan_by_size(Parameters parameters, std::vector<int> order, const BucketCaps& caps,
                        Oversize oversize) {
  check_caps(caps);
  const int count = static_cast<int>(order.size());
  const int last = last_bucket_start(parameters, order, caps.last_bytes);
  BucketPlan plan{.rule = text_of(caps, oversize), .order = std::move(order), .buckets = {}};
  const auto cap = [&](std::size_t index) { return cap_at(caps, index); };
  for (int position = 0; position < count; ++position) {
    const ParameterInfo& next = info(parameters, plan.order[static_cast<std::size_t>(position)]);
    const auto bytes = static_cast<double>(next.bytes);
    const bool opens = must_open(plan, next) || position == last ||
                       (position<last&& static_cast<double>(plan.buckets.back().bytes) + bytes> cap(
                           plan.buckets.size() - 1));
    const double room = position >= last ? caps.last_bytes : cap(plan.buckets.size());
    if (opens && oversize == Oversize::split && bytes > room) {
      // If it is the last of all, only its last part is the last bucket.
      const std::int64_t elements = next.bytes / size_of(next.dtype);
      const std::int64_t tail = position < last ? 0 : elements_under(caps.last_bytes, next);
      const std::int64_t head = round_up(std::max(elements - tail, std::int64_t{0}));
      add_parts(plan, position, next, {0, std::min(head, elements)}, cap);
      add_parts(plan, position, next, {std::min(head, elements), elements},
                [&](std::size_t) { return caps.last_bytes; });
    } else {
      add(plan, position, next, opens);
    }
  }
  return plan;
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

BucketPlan coalesce_small(BucketPlan plan, double min_bytes) {
  BRIGADE_CHECK(!std::isnan(min_bytes) && min_bytes >= 0,
                "plan: the smallest bucket must have 0 bytes or more; got ", min_bytes);
  const auto small = [&](const BucketSpec& bucket) {
    return bucket.bytes == 0 || static_cast<double>(bucket.bytes) < min_bytes;
  };
  const auto may_join = [](const BucketSpec& a, const BucketSpec& b) {
    return a.dtype == b.dtype && !a.is_part() && !b.is_part();
  };
  std::vector<BucketSpec> out;
  const auto join_last_two = [&] {
    BucketSpec& before = out[out.size() - 2];
    before.range.end = out.back().range.end;
    before.bytes += out.back().bytes;
    out.pop_back();
  };
  for (const BucketSpec& bucket : plan.buckets) {
    const std::size_t n = out.size();
    // Nothing that follows can take the last one in: it goes back.
    if (n > 1 && small(out[n - 1]) && !may_join(out[n - 1], bucket) && may_join(out[n - 2], out[n - 1]))
      join_last_two();
    const bool joins = !out.empty() && small(out.back()) && may_join(out.back(), bucket);
    out.push_back(bucket);
    if (joins) join_last_two();
  }
  const std::size_t n = out.size();
  if (n > 1 && small(out[n - 1]) && may_join(out[n - 2], out[n - 1])) join_last_two();
  plan.buckets = std::move(out);
  if (min_bytes > 0) plan.rule += fmt::format(", at least {:.4g} MiB", min_bytes / kMiB);
  return plan;
}

std::span<const PlanRule> plan_rules() { return kRules; }
const PlanRule& plan_rule(std::string_view name) { return choose("plan", name, kRules); }

BucketPlan make_plan(Parameters parameters, const PlanOptions& options) {
  const PlanRule& rule = plan_rule(options.rule);
  BucketPlan plan = rule.make(parameters, options);
  return rule.needs_json || rule.replans ? plan : coalesce_small(std::move(plan), options.caps.min_bytes);
}

}  // namespace brigade::dist
