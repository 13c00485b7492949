// SPDX-License-Identifier: MIT
// dist/ledger.cpp - interval arithmetic and the ring of step records.
#include "dist/ledger.h"

#include <algorithm>

#include "core/check.h"
#include "core/graph.h"
#include "core/runtime.h"

namespace brigade::dist {
namespace {

// Sorted disjoint intervals with the same union.
std::vector<Interval> merged(std::span<const Interval> intervals) {
  std::vector<Interval> sorted(intervals.begin(), intervals.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& next : sorted) {
    if (!out.empty() && next.begin <= out.back().end)
      out.back().end = std::max(out.back().end, next.end);
    else
      out.push_back(next);
  }
  return out;
}

std::vector<Interval> transfers(const StepRecord& step) {
  std::vector<Interval> out;
  for (const BucketRecord& bucket : step.buckets) out.push_back({bucket.start, bucket.end});
  return out;
}

}  // namespace

Clock::duration union_length(std::span<const Interval> intervals) {
  Clock::duration sum{};
  for (const Interval& interval : merged(intervals)) sum += interval.end - interval.begin;
  return sum;
}

Clock::duration intersection_length(std::span<const Interval> a, std::span<const Interval> b) {
  const auto x = merged(a), y = merged(b);
  Clock::duration sum{};
  for (std::size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    const auto begin = std::max(x[i].begin, y[j].begin), end = std::min(x[i].end, y[j].end);
    if (begin < end) sum += end - begin;
    // The one that ends first cannot meet anything later.
    if (x[i].end < y[j].end)
      ++i;
    else
      ++j;
  }
  return sum;
}

Clock::duration StepRecord::communication() const { return union_length(transfers(*this)); }

Clock::duration StepRecord::hidden() const {
  return intersection_length(transfers(*this), std::span(&backward, 1));
}

Clock::duration StepRecord::exposed(const BucketRecord& bucket) const {
  const Interval transfer{bucket.start, bucket.end};
  return (bucket.end - bucket.start) - intersection_length(std::span(&transfer, 1), std::span(&backward, 1));
}

Clock::duration StepRecord::waited() const {
  Clock::duration sum{};
  for (const BucketRecord& bucket : buckets) sum += bucket.waited;
  return sum;
}

double StepRecord::overlap() const {
  const Clock::duration all = communication();
  return all > Clock::duration{} ? milliseconds(hidden()) / milliseconds(all) : 0;
}

double StepRecord::bus_bandwidth(int ranks) const {
  std::int64_t bytes = 0;
  for (const BucketRecord& bucket : buckets) bytes += bucket.wire_bytes;
  const double seconds = std::chrono::duration<double>(communication()).count();
  return seconds > 0 ? 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes) / seconds : 0;
}

// An event of a capture happens in each launch and never has a time: the host's stands for it.
Event Ledger::here() const {
  return is_capturing(device_) ? Event() : runtime(device_).current_stream().record();
}

void Ledger::later(const Event& event, Put put) {
  if (event.state() == nullptr) return put(current(), Clock::now());
  if (const auto time = event.time()) return put(current(), *time);
  current().settled = false;
  late_.push_back({current().step, event, std::move(put)});
}

// Streams run in order, but there are several: each event is waited for.
void Ledger::settle_before(std::int64_t step) {
  while (!late_.empty() && late_.front().step < step) {
    const Late late = std::move(late_.front());
    late_.pop_front();
    late.event.wait();
    const std::int64_t index = late.step - steps_.front().step;
    if (index < 0) continue;  // The ring is shorter than the delay.
    StepRecord& record = steps_[static_cast<std::size_t>(index)];
    if (const auto time = late.event.time()) late.put(record, *time);
    if (late_.empty() || late_.front().step > late.step) record.settled = true;
  }
}

void Ledger::settle() { settle_before(next_step_); }

StepRecord& Ledger::begin_step() {
  settle_before(next_step_ - 1);
  if (steps_.size() == capacity_) steps_.pop_front();
  // One step loses its spans for each that begins.
  if (steps_.size() >= kStepsWithSpans) {
    StepRecord& old = steps_[steps_.size() - kStepsWithSpans];
    if (old.step < keep_first_ || old.step > keep_last_) std::vector<TimedSpan>().swap(old.spans);
  }
  steps_.emplace_back().step = next_step_++;
  return steps_.back();
}

StepRecord& Ledger::current() {
  BRIGADE_CHECK(!steps_.empty(), "ledger: no step recorded yet");
  return steps_.back();
}

const StepRecord& Ledger::last() const {
  BRIGADE_CHECK(!steps_.empty(), "ledger: no step recorded yet");
  return steps_.back();
}

const StepRecord* Ledger::newest() const {
  const auto found =
      std::find_if(steps_.rbegin(), steps_.rend(), [](const StepRecord& s) { return s.settled; });
  return found == steps_.rend() ? nullptr : &*found;
}

std::int64_t Ledger::steps_settled() const { return late_.empty() ? next_step_ : late_.front().step; }

const StepRecord* Ledger::find(std::int64_t step) const {
  const std::int64_t index = steps_.empty() ? -1 : step - steps_.front().step;
  return index < 0 || index >= static_cast<std::int64_t>(steps_.size())
             ? nullptr
             : &steps_[static_cast<std::size_t>(index)];
}

StepScope::StepScope(Ledger& ledger)
    : ledger_(ledger),
      range_([&] { return str("step ", ledger.steps_recorded() + 1); }),
      begin_(Clock::now()),
      device_begin_(ledger.device_ == Device{} ? Event() : ledger.here()),
      steps_before_(ledger.steps_recorded()),
      listening_(&ledger.timeline_) {
  ledger.timeline_.clear();
}

StepScope::~StepScope() {
  Timeline& timeline = ledger_.timeline_;
  timeline.close_to(0);  // Of an exception nothing is open any more; this costs nothing.
  if (ledger_.steps_recorded() == steps_before_ || ledger_.steps_.empty()) {
    timeline.clear();
    return;
  }
  StepRecord& step = ledger_.steps_.back();
  step.whole = {begin_, Clock::now()};
  timeline.take(step.spans);
  if (ledger_.device_ == Device{}) return;
  ledger_.later(device_begin_, [](StepRecord& record, Clock::time_point t) { record.whole.begin = t; });
  ledger_.stamp([](StepRecord& record, Clock::time_point t) { record.whole.end = t; });
}

Straggler straggler(std::span<const Clock::time_point> times) {
  BRIGADE_CHECK(!times.empty(), "straggler: needs the time of at least one rank");
  std::vector<Clock::time_point> sorted(times.begin(), times.end());
  std::sort(sorted.begin(), sorted.end());
  const auto last = std::max_element(times.begin(), times.end());
  return {static_cast<int>(last - times.begin()), *last - sorted[(sorted.size() - 1) / 2]};
}

}  // namespace brigade::dist
