// SPDX-License-Identifier: MIT
// dist/ledger.h - the record of what each bucket did in each step, and the truth about overlap drawn from it.
// Always on: a few dozen time stamps a step. Read before: core/stream.h. Written by dist/bucket_reducer.h.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/stream.h"

namespace brigade::dist {

/// A stretch of time, begin <= end.
struct Interval {
  Clock::time_point begin, end;
};

/// Length of the union of `intervals` (any order, may overlap).
Clock::duration union_length(std::span<const Interval> intervals);
/// Length of (union of a) ∩ (union of b): true intersection, no double counting.
Clock::duration intersection_length(std::span<const Interval> a, std::span<const Interval> b);

/// One bucket in one step.
struct BucketRecord {
  int bucket = 0;
  std::int64_t bytes = 0;
  Clock::time_point first_ready{}, last_ready{};  ///< Its first and last gradient were accumulated.
  Clock::time_point launch{}, start{}, end{};     ///< Queued; begun and finished on the communication stream.
  Clock::duration waited{};                       ///< The compute thread stood still for it.
  std::int64_t wire_bytes = 0;                    ///< HookReport::wire_bytes.
  double square_norm = 0;  ///< Sum of squares of the reduced gradients, if norms are taken.
};

/// One synchronised backward.
struct StepRecord {
  std::int64_t step = 0;
  Interval backward;                  ///< First closure to last gradient.
  std::vector<BucketRecord> buckets;  ///< In launch order.
  /// When each gradient was final, by position; `backward.begin` if unused.
  std::vector<Clock::time_point> ready;
  Interval control;                ///< The roll call (dist/roll_call.h)…
  std::int64_t control_bytes = 0;  ///< … and its size.

  Clock::duration communication() const;  ///< Union of [start, end] over buckets.
  Clock::duration hidden() const;         ///< Part of it inside `backward`.
  Clock::duration exposed() const { return communication() - hidden(); }
};

/// The last `capacity` steps.
class Ledger {
 public:
  explicit Ledger(std::size_t capacity = 1024) : capacity_(capacity) {}

  /// Starts the record of the next step.
  StepRecord& begin_step();
  /// The step being recorded, or the last one; Error if there is none yet.
  StepRecord& current();
  const StepRecord& last() const;
  const std::deque<StepRecord>& steps() const { return steps_; }
  std::int64_t steps_recorded() const { return next_step_; }

 private:
  std::size_t capacity_;
  std::int64_t next_step_ = 0;
  std::deque<StepRecord> steps_;
};

inline double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace brigade::dist
