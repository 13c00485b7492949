// SPDX-License-Identifier: MIT
// dist/plan_makers.h - the rules that make bucket plans from sizes and orders. Pure functions.
// Read before: dist/bucket_plan.h. Read next: dist/planner.h (plans from measurements), dist/grad_sync.h.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/bucket_plan.h"

namespace brigade::dist {

/// Sizes of buckets in bytes. A bucket closes before the parameter that would push it over its cap. A parameter that is
/// larger than the cap gets a bucket of its own, or several if it may be split.
struct BucketCaps {
  double bytes = 4 * kMiB;
  /// Of the bucket that launches first: small, so that the wire starts early.
  double first_bytes = 1 * kMiB;
  /// Of the bucket that launches last, of which nothing is hidden. Infinity: no cap of its own.
  double last_bytes = std::numeric_limits<double>::infinity();
  /// Not empty: bucket k's cap is list[k], and the last entry's from there on; `bytes` and `first_bytes` do not count.
  std::vector<double> list = {};
  /// Smaller buckets join a neighbour: see coalesce_small.
  double min_bytes = 0;
};

/// What a program's flags can say about a plan. Rule size (and what auto starts with) heeds everything but `json`;
/// the others an order if they have none of their own, and caps.min_bytes; torch's cap is caps.bytes.
struct PlanOptions {
  std::string rule = "size";      ///< A name of plan_rules().
  std::string order = "reverse";  ///< A name of order_names().
  BucketCaps caps = {};
  bool split = false;              ///< Parameters over their cap are cut into parts.
  std::vector<int> observed = {};  ///< What order "ready" needs: see dist/ready_order.h.
  /// What rule "file" needs: the text of a plan file. A rule that re-plans starts with it, if there is one.
  std::string json = {};
};

/// Throws Error naming `flag` unless `mebibytes` is a positive finite number (infinity counts as "no cap").
double cap_from_mib(std::string_view flag, double mebibytes);

// Orders: lists of indices into `parameters`, which are in order of registration.
//   reverse     the reverse of registration: about the order in which backward finishes
//   forward     registration
//   memory      largest first
//   norm_first  parameters with fewer than two dims (norms, biases) first, each group in reverse
//   random:N    shuffled with seed N
//   ready       as observed in one backward: `observed`, which must list each parameter once
/// Throws Error listing the choices for an unknown name.
std::vector<int> make_order(std::string_view name, std::span<const ParameterInfo> parameters,
                            std::span<const int> observed = {});
std::vector<std::string_view> order_names();

/// What becomes of a parameter that is larger than its bucket's cap.
enum class Oversize : std::uint8_t { alone, split };

// Makers of plans.

/// With Oversize::split an oversize parameter is cut into parts, each a bucket of at most its cap (but at least
/// kPartMultiple elements), as equal as their caps allow, so that no crumb is left over.
BucketPlan plan_by_size(std::span<const ParameterInfo> parameters, std::vector<int> order,
                        const BucketCaps& caps, Oversize oversize = Oversize::alone);
/// PyTorch's rule (reducer.cpp, compute_bucket_assignment_by_size): a bucket closes when it has *reached* its cap.
/// First-step plan: buckets are filled in forward order, 1 MiB then `cap` bytes, and launched in reverse.
BucketPlan plan_torch(std::span<const ParameterInfo> parameters, double cap_bytes);
/// The plan PyTorch rebuilds after its first step: filled in the order of readiness, taken to be the reverse.
BucketPlan plan_torch_rebuilt(std::span<const ParameterInfo> parameters, double cap_bytes);
BucketPlan plan_per_parameter(std::span<const ParameterInfo> parameters, std::vector<int> order);
/// One bucket (per dtype).
BucketPlan plan_flat(std::span<const ParameterInfo> parameters, std::vector<int> order);

/// A bucket of fewer than `min_bytes` joins the one after it, with all that this one then holds; the last of its dtype
/// joins the one before. Caps do not count any more. Parts neither join nor are joined. A bucket without any bytes (of
/// zero-element parameters) counts as too small in any case: nothing is sent for nothing.
BucketPlan coalesce_small(BucketPlan plan, double min_bytes);

/// A rule by name: what --plan takes.
struct PlanRule {
  std::string_view name;
  std::string_view description;
  BucketPlan (*make)(std::span<const ParameterInfo> parameters, const PlanOptions& options);
  bool replans = false;  ///< The plan made at the start is replaced by planned ones while training goes on.
  bool needs_json = false;  ///< Takes the plan of PlanOptions::json as it stands.
};
std::span<const PlanRule> plan_rules();
/// Throws Error listing the choices for an unknown name.
const PlanRule& plan_rule(std::string_view name);
/// The plan of options.rule with small buckets coalesced, except one from a file.
BucketPlan make_plan(std::span<const ParameterInfo> parameters, const PlanOptions& options);

}  // namespace brigade::dist
