// SPDX-License-Identifier: MIT
// dist/bucket_plan.h - which gradients travel together, and in which order: a value, made by pure functions.
// Read before: nn/optim/flat_parameters.h. Read next: dist/plan_makers.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::dist {

/// What a plan needs to know of one trainable parameter.
struct ParameterInfo {
  std::string name;
  std::int64_t bytes = 0;  ///< Of its elements.
  DType dtype = DType::f32;
  int dims = 0;  ///< Fewer than two: of a norm, or a bias.
};

/// Consecutive positions of the flat order that travel in one collective. All of one dtype.
struct BucketSpec {
  optim::Range range;
  std::int64_t bytes = 0;  ///< Sum of its parameters' bytes, without alignment gaps.
  DType dtype = DType::f32;
  friend bool operator==(const BucketSpec&, const BucketSpec&) = default;
};

/// Every parameter is in exactly one bucket; buckets launch in this order on every rank.
struct BucketPlan {
  std::string rule;        ///< How it was made: "size cap 4 MiB, first 1 MiB".
  std::vector<int> order;  ///< order[position] = index into the list of parameters.
  std::vector<BucketSpec> buckets;
  friend bool operator==(const BucketPlan&, const BucketPlan&) = default;
};

inline constexpr double kMiB = 1024.0 * 1024.0;

/// Buckets that end before the given positions, ascending; the last is the number of parameters. Throws Error if the
/// ends do not fit or a bucket would mix dtypes.
BucketPlan plan_from_ends(std::span<const ParameterInfo> parameters, std::vector<int> order,
                          std::span<const std::int32_t> ends, std::string rule);

/// Throws Error unless the plan covers `parameters` exactly once with one dtype a bucket and right sizes.
void check_plan(const BucketPlan& plan, std::span<const ParameterInfo> parameters);

/// A table for people: bucket, parameters, MiB, dtype, first and last parameter.
std::string plan_table(const BucketPlan& plan, std::span<const ParameterInfo> parameters);
/// JSON with parameter names; plan_from_json checks it against `parameters` and throws
/// Error on any difference.
std::string plan_to_json(const BucketPlan& plan, std::span<const ParameterInfo> parameters);
BucketPlan plan_from_json(const std::string& json, std::span<const ParameterInfo> parameters);

}  // namespace brigade::dist
