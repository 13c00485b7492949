// SPDX-License-Identifier: MIT
// dist/grad_sync.h - when gradients travel: the interface of strategies and their name table.
// A strategy is a line in dist/strategies/table.cpp: a class of that folder and a maker of plans; --help, the error
// "unknown strategy" and the theorem tests come from that table. Read before: dist/bucket_reducer.h.
// Read next: dist/strategies/, dist/ddp.h.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dist/bucket_reducer.h"
#include "dist/plan_makers.h"

namespace brigade::dist {

/// Decides when the buckets of a plan are launched. All calls come from the rank's compute thread.
class GradSync {
 public:
  virtual ~GradSync() = default;
  /// A backward begins; `reducer.begin()` was called and gradients that this backward
  /// will not touch are marked ready.
  virtual void begin() {}
  /// One more gradient was marked ready.
  virtual void on_grad_ready() {}
  /// Backward has computed everything: launch what is left. Need not wait: BucketReducer::finish() does.
  virtual void finish() = 0;
};

struct Strategy {
  std::string_view name;
  std::string_view description;  ///< One line for --help.
  BucketPlan (*plan)(std::span<const ParameterInfo> parameters, const PlanOptions& options);
  std::unique_ptr<GradSync> (*make)(BucketReducer& reducer);
  bool overlaps = false;       ///< Launches buckets from inside backward, not behind it.
  bool plans_by_rule = false;  ///< `plan` follows PlanOptions::rule, which may be one that re-plans.
};

std::span<const Strategy> strategies();
/// Throws Error `unknown strategy "bucket"; choose from …`.
const Strategy& strategy(std::string_view name);

}  // namespace brigade::dist
