// SPDX-License-Identifier: MIT
// dist/ledger.cpp - interval arithmetic and the ring of step records.
#include "dist/ledger.h"

#include <algorithm>

#include "core/check.h"

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

StepRecord& Ledger::begin_step() {
  if (steps_.size() == capacity_) steps_.pop_front();
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

}  // namespace brigade::dist
