// SPDX-License-Identifier: MIT
// core/span.cpp - see the header.
#include "core/span.h"

namespace brigade {

void SpanTotals::begin(std::string_view name, const SpanDetails&) {
  auto at = totals_.find(name);
  if (at == totals_.end()) at = totals_.emplace(name, Total{}).first;
  open_.push_back({&at->second, Clock::now(), {}});
}

void SpanTotals::end() {
  const Open span = open_.back();
  open_.pop_back();
  const Clock::duration length = Clock::now() - span.begin;
  ++span.total->calls;
  span.total->self += length - span.inside;
  if (!open_.empty()) open_.back().inside += length;
}

SpanTotals::Total SpanTotals::of(std::string_view name) const {
  const auto at = totals_.find(name);
  return at == totals_.end() ? Total{} : at->second;
}

}  // namespace brigade
