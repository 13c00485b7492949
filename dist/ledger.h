// SPDX-License-Identifier: MIT
// dist/ledger.h - the record of what each bucket and each layer did in each step, and the truth about overlap drawn
// from it. Always on: a few hundred time stamps a step, which cost microseconds (tests/dist/ledger_cost_test.cpp counts
// them). What a device does is known later: its times come from events, and are looked at two steps on.
// Read before: core/timeline.h. Written by dist/bucket_reducer.h. Read next: dist/ledger_gather.h (all ranks).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/profiler.h"
#include "core/timeline.h"

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
  int parameters = 0;                             ///< In it, whole or in part.
  Clock::time_point first_ready{}, last_ready{};  ///< Its first and last gradient were accumulated.
  Clock::time_point launch{}, start{}, end{};     ///< Queued; begun and finished on the communication stream.
  Clock::duration waited{};                       ///< The compute thread stood still for it.
  std::int64_t wire_bytes = 0;                    ///< HookReport::wire_bytes.
  double square_norm = 0;  ///< Sum of squares of the reduced gradients, if norms are taken.
};

/// One synchronised backward, and what its thread computed around it.
struct StepRecord {
  std::int64_t step = 0;        ///< From 0.
  std::int64_t plan_epoch = 0;  ///< How often the plan had changed.
  /// All times are known. Until then those that a device has not told are the host's, which ran ahead of it.
  bool settled = true;
  Interval whole;                     ///< The StepScope, from data to optimizer; empty if there is none.
  Interval backward;                  ///< First closure to last gradient.
  std::vector<BucketRecord> buckets;  ///< In launch order.
  /// When each gradient was final, by position; `backward.begin` if unused.
  std::vector<Clock::time_point> ready;
  Interval control;                ///< The roll call (dist/roll_call.h)…
  std::int64_t control_bytes = 0;  ///< … and its size.
  /// Layers, optimizer, waiting for data, in order of beginning; needs a StepScope. Only of the last steps and of those
  /// asked for: Ledger::keep_spans(). On a device: when the host enqueued them.
  std::vector<TimedSpan> spans;

  Clock::duration communication() const;  ///< Union of [start, end] over buckets.
  Clock::duration hidden() const;         ///< Part of it inside `backward`.
  Clock::duration exposed() const { return communication() - hidden(); }
  /// Part of one bucket's [start, end] outside `backward`.
  Clock::duration exposed(const BucketRecord& bucket) const;
  Clock::duration waited() const;  ///< That the compute thread stood still, over buckets.
  double overlap() const;          ///< hidden() of communication(), 0 … 1; 0 without communication.
  /// Bytes per second as nccl-tests count them for all-reduce, 2 (n-1)/n of the payload over the time on the wire: to
  /// be compared with the links' bandwidth whatever the number of ranks. 0 for one rank.
  double bus_bandwidth(int ranks) const;
};

/// The last `capacity` steps.
class Ledger {
 public:
  explicit Ledger(std::size_t capacity = 1024) : capacity_(capacity) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Steps whose spans are kept besides those asked for: enough to look at what just went wrong.
  static constexpr std::size_t kStepsWithSpans = 8;

  /// Where the spans of a StepScope go.
  Timeline& timeline() { return timeline_; }
  const Timeline& timeline() const { return timeline_; }
  /// Keeps the spans of steps [first, last] while the steps are kept.
  void keep_spans(std::int64_t first, std::int64_t last) { keep_first_ = first, keep_last_ = last; }

  /// The next step is `step`: of a run that goes on from a checkpoint. Before the first.
  void start_at(std::int64_t step) { next_step_ = step; }
  /// Where the steps are computed. On a device the times of a step are those of its current stream.
  void set_device(Device device) { device_ = device; }
  /// Calls put(record of the current step, time): now on the CPU, as a device knows the time when the step is settled.
  /// In a capture (core/graph.h) it is the host's time, now.
  template <class Put>
  void stamp(const Put& put) {
    if (device_ == Device{}) [[likely]]
      put(current(), Clock::now());
    else
      later(here(), put);
  }
  /// The same with the time of an event; at once if nobody takes it, or if it is known.
  using Put = std::function<void(StepRecord&, Clock::time_point)>;
  void later(const Event& event, Put put);

  /// Starts the record of the next step. Those from two steps ago are settled: blocks until the device is through with
  /// them, which it nearly always is; so a host is never further ahead. All ranks know the same steps at the same time.
  StepRecord& begin_step();
  /// Blocks until all steps are settled. Not in the middle of one.
  void settle();
  /// The step being recorded, or the last one; Error if there is none yet.
  StepRecord& current();
  const StepRecord& last() const;
  /// The newest one that is settled; nullptr if there is none. On the CPU last().
  const StepRecord* newest() const;
  std::int64_t steps_settled() const;  ///< How many from the first on; those kept are the last of them.
  const StepRecord* find(std::int64_t step) const;  ///< nullptr if it is not kept.
  const std::deque<StepRecord>& steps() const { return steps_; }
  std::int64_t steps_recorded() const { return next_step_; }  ///< Those before start_at() included.

 private:
  friend class StepScope;
  struct Late {
    std::int64_t step;
    Event event;
    Put put;
  };
  Event here() const;  // In the current stream.
  void settle_before(std::int64_t step);

  std::size_t capacity_;
  Device device_;
  std::deque<Late> late_;  // By step.
  std::int64_t next_step_ = 0;
  std::deque<StepRecord> steps_;
  Timeline timeline_;
  std::int64_t keep_first_ = 0, keep_last_ = -1;
};

/// From here to the end of the scope this thread is in one step of training: data, forward, backward, optimizer. Their
/// spans go to the step that is recorded meanwhile (to nobody, if there was no synchronised backward). Scopes of one
/// ledger do not nest.
class StepScope {
 public:
  explicit StepScope(Ledger& ledger);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  Ledger& ledger_;
  ProfilerRange range_;  // "step 12", from 1 as people count.
  Clock::time_point begin_;
  Event device_begin_;
  std::int64_t steps_before_;
  TimelineScope listening_;
};

/// Who was last, and how long after the median: of an even number of ranks after the earlier of the two in the middle.
struct Straggler {
  int rank = 0;
  Clock::duration lag{};
};
/// `times` by rank, at least one.
Straggler straggler(std::span<const Clock::time_point> times);

inline double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace brigade::dist
