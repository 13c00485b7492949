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

/// Elements [begin, end) of one parameter.
struct ElementRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

/// Parts start at multiples of this many elements: on cache lines for f32, as memory of whole buckets does.
inline constexpr std::int64_t kPartMultiple = 16;

/// What travels in one collective, all of one dtype: the parameters at consecutive positions of the flat order, or a
/// part of a single parameter.
struct BucketSpec {
  optim::Range range;      ///< Of a part: the one position it is cut from.
  std::int64_t bytes = 0;  ///< Of what it holds, without alignment gaps.
  DType dtype = DType::f32;
  /// Empty: whole parameters. The parts of a parameter are consecutive buckets, at least two, in order and without gap.
  /// Each starts at a multiple of kPartMultiple.
  ElementRange part = {};
  bool is_part() const { return part.count() > 0; }
  friend bool operator==(const BucketSpec&, const BucketSpec&) = default;
};

/// Every element of every parameter is in exactly one bucket; buckets launch in this order on every rank.
struct BucketPlan {
  std::string rule;        ///< How it was made: "size cap 4 MiB, first 1 MiB".
  std::vector<int> order;  ///< order[position] = index into the list of parameters.
  std::vector<BucketSpec> buckets;
  friend bool operator==(const BucketPlan&, const BucketPlan&) = default;
};

inline constexpr double kMiB = 1024.0 * 1024.0;

/// Buckets of whole parameters that end before the given positions, ascending; the last is the number of parameters.
/// Throws Error if the ends do not fit or a bucket would mix dtypes.
BucketPlan plan_from_ends(std::span<const ParameterInfo> parameters, std::vector<int> order,
                          std::span<const std::int32_t> ends, std::string rule);

/// Throws Error unless the plan covers `parameters` exactly once with one dtype a bucket and right sizes, and parts are
/// as BucketSpec says.
void check_plan(const BucketPlan& plan, std::span<const ParameterInfo> parameters);

/// A table for people: bucket, parameters, MiB, dtype, first and last parameter, or parameter and elements of a part.
std::string plan_table(const BucketPlan& plan, std::span<const ParameterInfo> parameters);

/// JSON with parameter names; see dist/plan_json.cpp for the format. plan_from_json is its inverse and takes text from
/// anywhere: it throws Error, one line that starts with "plan:", for whatever is not a plan of exactly `parameters`.
std::string plan_to_json(const BucketPlan& plan, std::span<const ParameterInfo> parameters);
BucketPlan plan_from_json(const std::string& json, std::span<const ParameterInfo> parameters);

}  // namespace brigade::dist
