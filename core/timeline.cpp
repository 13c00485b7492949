// SPDX-License-Identifier: MIT
// core/timeline.cpp - opening and closing spans.
#include "core/timeline.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/profiler.h"

namespace brigade {

std::string_view name(SpanKind kind) {
  constexpr std::string_view kNames[] = {"forward", "backward", "optimizer", "data", "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

void Timeline::set_layers(std::vector<std::string> names) {
  BRIGADE_CHECK(open_.empty(), "timeline: layers are named while ", open_.size(), " spans are open");
  layers_ = std::move(names);
  parents_.assign(layers_.size(), -1);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::size_t dot = layers_[i].rfind('.');
    if (dot == std::string::npos) continue;
    // In the order of a walk the parent stands before its children, and the nearest of that name is meant.
    const std::string parent = layers_[i].substr(0, dot);
    for (std::size_t j = i; j-- > 0 && parents_[i] < 0;)
      if (layers_[j] == parent) parents_[i] = static_cast<std::int32_t>(j);
  }
}

std::string Timeline::name(const TimedSpan& span) const {
  const auto layer = static_cast<std::size_t>(span.layer);
  if (span.layer < 0 || layer >= layers_.size() || layers_[layer].empty())
    return std::string(brigade::name(span.kind));
  return layers_[layer];
}

void Timeline::open(SpanKind kind, int layer, Clock::time_point now) {
  std::int32_t index = -1;
  if (spans_.size() < kMaxSpans) {
    index = static_cast<std::int32_t>(spans_.size());
    spans_.push_back({layer, static_cast<std::int16_t>(open_.size()), kind, now, now});
  } else {
    ++lost_;
  }
  open_.push_back({layer, index});
  if (RangeSink* const sink = profiler()) [[unlikely]]
    sink->begin(name(TimedSpan{.layer = layer, .kind = kind}));
}

void Timeline::close(std::size_t count, Clock::time_point now) {
  RangeSink* const sink = profiler();
  for (; open_.size() > count; open_.pop_back()) {
    if (open_.back().index >= 0) spans_[static_cast<std::size_t>(open_.back().index)].end = now;
    if (sink != nullptr) [[unlikely]]
      sink->end();
  }
}

void Timeline::move_to(std::size_t base, SpanKind kind, int layer) {
  chain_.clear();
  // The root is left out: it would only say "backward" again.
  for (int at = layer; at >= 0 && static_cast<std::size_t>(at) < layers_.size();
       at = parents_[static_cast<std::size_t>(at)])
    if (!layers_[static_cast<std::size_t>(at)].empty()) chain_.push_back(at);
  std::reverse(chain_.begin(), chain_.end());
  std::size_t common = 0;
  while (common < chain_.size() && base + common < open_.size() &&
         open_[base + common].layer == chain_[common])
    ++common;
  const Clock::time_point now = Clock::now();  // One ends where the next begins.
  close(base + common, now);
  for (; common < chain_.size(); ++common) open(kind, chain_[common], now);
}

void Timeline::take(std::vector<TimedSpan>& spans) {
  BRIGADE_CHECK(open_.empty(), "timeline: taken while ", open_.size(), " spans are open");
  std::swap(spans, spans_);
  clear();
}

void Timeline::clear() {
  close_to(0);
  spans_.clear();
  lost_ = 0;
}

}  // namespace brigade
