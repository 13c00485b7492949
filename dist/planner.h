// SPDX-License-Identifier: MIT
// dist/planner.h - where to cut: the plan under which the last gradient is usable earliest, by dynamic programming.
// Pure functions. Read before: dist/bucket_plan.h. Read next: dist/replanner.h, which feeds them with measurements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dist/bucket_plan.h"

namespace brigade::dist {

/// Time of one bucket's collective: fixed cost + bytes * cost per byte, by size class (small messages cost more than
/// their share, see the eager and rendezvous protocols of MPI).
struct CostModel {
  struct Class {
    /// Sizes up to and including this; the last class takes all larger ones too.
    std::int64_t max_bytes = 0;
    double fixed_s = 0;     ///< α
    double per_byte_s = 0;  ///< β
    friend bool operator==(const Class&, const Class&) = default;
  };
  std::vector<Class> classes;  ///< Ascending; not empty.
  double seconds(std::int64_t bytes) const;
};

/// One completed bucket: what CostModel is fitted to.
struct CostSample {
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// Least squares of relative errors within each class (limits: 64 KiB, 1 MiB, 16 MiB), never negative. A class without
/// two different sizes borrows from its neighbours. At least one sample (Error otherwise).
CostModel fit_cost(std::span<const CostSample> samples);

/// When the gradients of one backward become final, by position in the flat order, in seconds from its start.
using ReadyTimes = std::vector<double>;

/// What a plan would do in the model.
struct Prediction {
  double last_ready_s = 0;     ///< Backward's last gradient.
  double finish_s = 0;         ///< The last gradient is reduced.
  double communication_s = 0;  ///< Sum over buckets.
  double exposed_s() const { return finish_s - last_ready_s; }
};

/// Buckets launch in order, each when all its gradients and those of earlier buckets are ready;
/// the wire carries one at a time.
Prediction predict(std::span<const BucketSpec> buckets, const ReadyTimes& ready, const CostModel& cost);

/// A bound on finish_s for any plan and any order of launching, whatever its fixed costs: the gradients at positions
/// j … n-1 can start to travel only when the first of them is ready. `bytes` by position.
double earliest_finish(std::span<const std::int64_t> bytes, const ReadyTimes& ready, double per_byte_s);

/// The contiguous cuts with the earliest finish_s; among equals the fewest buckets. Never cuts across dtypes wrongly: a
/// bucket has one dtype. O(n²) for n parameters. `order` lists indices into `parameters`, `ready` goes by position.
BucketPlan plan_auto(std::span<const ParameterInfo> parameters, std::vector<int> order,
                     const ReadyTimes& ready, const CostModel& cost);

}  // namespace brigade::dist
