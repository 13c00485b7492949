// SPDX-License-Identifier: MIT
// dist/replanner.h - keeps the plan right while training goes on: measures, agrees, and swaps the cuts between steps.
//
// Every `period` steps, without anybody waiting:
//   after step k      all ranks reduce their measurements: ready times (the latest rank counts) and durations of
//                     collectives (the fastest rank counts: the others waited for it inside the call)
//   after step k + 1  rank 0 fits the cost model, plans, and broadcasts the cuts (the next roll call compares epochs)
//   before step k + 2 every rank switches, or nobody
// Read before: dist/planner.h, dist/ledger.h. Used by dist/ddp.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/ledger.h"
#include "dist/planner.h"
#include "dist/process_group.h"

namespace brigade::dist {

struct ReplanOptions {
  int period = 5;          ///< Steps between two looks at the measurements; at least 3.
  double min_gain = 0.03;  ///< Predicted gain in time per step that makes a change worth while…
  int patience = 2;  ///< … when it is seen this many times in a row. The first plan needs no patience.
  double smoothing = 0.5;  ///< Weight of the newest ready times in their moving average.
};

/// What rank 0 decided, for people and for the ledger.
struct PlanChange {
  std::int64_t step = 0;  ///< First step with the new plan.
  std::size_t buckets = 0;
  Prediction before, after;               ///< Of the old and the new plan, under the same measurements.
  double exposed_before_s = 0;            ///< Measured on rank 0 under the old plan…
  std::optional<double> exposed_after_s;  ///< … and under the new one, some steps later…
  std::int64_t measured_step = -1;        ///< … when this step was over.
  /// "plan auto: 6 buckets since step 8; exposed 3.1 ms, predicted 2.9 ms, before 21.6 ms"
  std::string text() const;
};

/// One rank's part of the agreement. All ranks make the same calls in the same order.
class Replanner {
 public:
  /// `parameters` by index of the plan's order.
  Replanner(ProcessGroup& group, std::vector<ParameterInfo> parameters, ReplanOptions options = {});

  /// The synchronised backward of `step` has ended under `plan`. `record` is the newest that is known, of an earlier
  /// step on a device; nullptr: none is. Each is looked at once. Waits for nothing but what was sent a step ago.
  void after_step(const StepRecord* record, std::int64_t step, const BucketPlan& plan);
  /// Before the next: the plan to use from now on, if it changes.
  std::optional<BucketPlan> before_step(const BucketPlan& plan);

  /// The last change that rank 0 decided; empty on other ranks and before the first.
  const std::optional<PlanChange>& last_change() const { return change_; }

 private:
  void observe(const StepRecord& record);
  void measure_change(const StepRecord& record, std::int64_t step);
  void send_measurements(const BucketPlan& plan);
  void decide(const BucketPlan& plan, std::int64_t next_step);

  ProcessGroup* group_;
  std::vector<ParameterInfo> parameters_;
  ReplanOptions options_;
  enum class Phase { measuring, deciding, announced } phase_ = Phase::measuring;

  std::int64_t seen_ = 0;  // Records of this run that were looked at.
  // This rank's measurements since they were last sent.
  ReadyTimes ready_;  // Moving average.
  // Seconds: of the control collective, then of each bucket; the shortest seen.
  std::vector<double> durations_;
  std::int64_t control_bytes_ = 0;  // Of the control collective.
  std::int64_t last_seen_ = -1;     // Step of the last record that was looked at.
  std::int64_t planned_at_ = 0;     // First step of the plan in use: records from before say nothing of it.
  double exposed_s_ = 0;            // Moving average.

  // Under way.
  std::int64_t next_step_ = 0;              // Where what was decided begins.
  std::vector<std::int64_t> sample_bytes_;  // What the durations are of.
  Tensor measurements_;                     // f64: ready times, then durations negated; reduced with max.
  Work measurements_work_;
  Tensor decision_;  // i32: number of buckets or 0 for no change, then where each ends.
  Work decision_work_;

  // Rank 0.
  int gains_in_a_row_ = 0;
  bool planned_once_ = false;
  double exposed_sum_s_ = 0;  // Since the last change…
  int exposed_steps_ = 0;     // … in so many steps.
  std::optional<PlanChange> change_;
};

}  // namespace brigade::dist
