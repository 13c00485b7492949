// SPDX-License-Identifier: MIT
// dist/plan_makers.h - the rules that make bucket plans from sizes and orders. Pure functions.
// Read before: dist/bucket_plan.h. Read next: dist/planner.h (plans from measurements), dist/grad_sync.h.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/bucket_plan.h"

namespace brigade::dist {

/// Caps in bytes. A bucket closes before the parameter that would push it over its cap. A parameter is never split:
/// one larger than the cap gets a bucket of its own.
struct BucketCaps {
  double bytes = 4 * kMiB;
  /// Of the bucket that launches first: small, so that the wire starts early.
  double first_bytes = 1 * kMiB;
  /// Of the bucket that launches last, of which nothing is hidden. Infinity: no cap of its own.
  double last_bytes = std::numeric_limits<double>::infinity();
};

/// What a program's flags can say about a plan.
struct PlanOptions {
  std::string rule = "size";      ///< A name of plan_rules().
  std::string order = "reverse";  ///< A name of order_names().
  BucketCaps caps = {};
};

/// Throws Error naming `flag` unless `mebibytes` is a positive finite number (infinity counts as "no cap").
double cap_from_mib(std::string_view flag, double mebibytes);

// Orders: lists of indices into `parameters`, which are in order of registration.
//   reverse     the reverse of registration: about the order in which backward finishes
//   forward     registration
//   memory      largest first
//   norm_first  parameters with fewer than two dims (norms, biases) first, each group in reverse
//   random:N    shuffled with seed N
/// Throws Error listing the choices for an unknown name.
std::vector<int> make_order(std::string_view name, std::span<const ParameterInfo> parameters);
std::vector<std::string_view> order_names();

// Makers of plans.
BucketPlan plan_by_size(std::span<const ParameterInfo> parameters, std::vector<int> order,
                        const BucketCaps& caps);
/// PyTorch's rule (reducer.cpp, compute_bucket_assignment_by_size): a bucket closes when it has *reached* its cap.
/// First-step plan: buckets are filled in forward order, 1 MiB then `cap` bytes, and launched in reverse.
BucketPlan plan_torch(std::span<const ParameterInfo> parameters, double cap_bytes);
/// The plan PyTorch rebuilds after its first step: filled in the order of readiness, taken to be the reverse.
BucketPlan plan_torch_rebuilt(std::span<const ParameterInfo> parameters, double cap_bytes);
BucketPlan plan_per_parameter(std::span<const ParameterInfo> parameters, std::vector<int> order);
/// One bucket (per dtype).
BucketPlan plan_flat(std::span<const ParameterInfo> parameters, std::vector<int> order);

/// A rule by name: what --plan takes.
struct PlanRule {
  std::string_view name;
  std::string_view description;
  BucketPlan (*make)(std::span<const ParameterInfo> parameters, const PlanOptions& options);
  bool replans = false;  ///< The plan made at the start is replaced by planned ones while training goes on.
};
std::span<const PlanRule> plan_rules();
/// Throws Error listing the choices for an unknown name.
const PlanRule& plan_rule(std::string_view name);

}  // namespace brigade::dist
