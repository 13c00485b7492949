// SPDX-License-Identifier: MIT
// core/timeline.h - what a thread computes, stretch by stretch: which layer ran forward or backward, and when. Made to
// be always on: two looks at the clock a stretch, and no allocation once warm. (Spans by operation, core/span.h, cost
// more and are off.) Read next: nn/module.h and autograd/engine.cpp, which mark; dist/ledger.h, which listens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/stream.h"

namespace brigade {

enum class SpanKind : std::uint8_t { forward, backward, optimizer, data, other };
std::string_view name(SpanKind kind);

/// A stretch of computation. Those of one thread nest.
struct TimedSpan {
  std::int32_t layer = -1;  ///< Number of the layer (Timeline::layers); -1: of none, like the loss.
  std::int16_t depth = 0;   ///< Spans it lies in.
  SpanKind kind = SpanKind::other;
  Clock::time_point begin{}, end{};
};

/// The spans of one thread.
class Timeline {
 public:
  /// More are counted, not kept: a loop without end must not fill memory.
  static constexpr std::size_t kMaxSpans = 1 << 14;

  /// Names of layers by number, dotted paths ("layer1.0.conv1") as nn::Module::number_layers returns them.
  void set_layers(std::vector<std::string> names);
  const std::vector<std::string>& layers() const { return layers_; }
  /// "layer1.0.conv1", or the kind where there is no layer and for the root.
  std::string name(const TimedSpan& span) const;

  void begin(SpanKind kind, int layer = -1) { open(kind, layer, Clock::now()); }
  void end() { close(open_.size() - 1, Clock::now()); }
  /// Layer of the innermost open span; -1 if it has none.
  int layer() const { return open_.empty() ? -1 : open_.back().layer; }

  /// Ends and begins spans of `kind` so that exactly `layer` and the layers it is part of are open, inside the `base`
  /// outermost ones that are open anyway.
  void move_to(std::size_t base, SpanKind kind, int layer);
  std::size_t open_count() const { return open_.size(); }
  /// Ends spans until `count` are open.
  void close_to(std::size_t count) {
    if (open_.size() > count) close(count, Clock::now());
  }

  /// Swaps what was recorded, in order of beginning, with the memory of `spans`, and is empty. No span may be open.
  void take(std::vector<TimedSpan>& spans);
  void clear();
  std::int64_t lost() const { return lost_; }  ///< Spans beyond kMaxSpans, since the last take() or clear().

 private:
  struct Open {
    std::int32_t layer;
    std::int32_t index;  // In spans_; -1: lost.
  };
  void open(SpanKind kind, int layer, Clock::time_point now);
  void close(std::size_t count, Clock::time_point now);

  std::vector<std::string> layers_;
  std::vector<std::int32_t> parents_;  // By layer; -1 for what lies in the root or nowhere.
  std::vector<TimedSpan> spans_;
  std::vector<Open> open_;           // Outermost first.
  std::vector<std::int32_t> chain_;  // Scratch of move_to.
  std::int64_t lost_ = 0;
};

namespace detail {
inline constinit thread_local Timeline* timeline = nullptr;
}  // namespace detail

/// The layer that computes on this thread, for operations to remember; -1: none, or nobody listens.
inline int current_layer() { return detail::timeline == nullptr ? -1 : detail::timeline->layer(); }

/// Until the end of the scope spans of this thread go to `timeline` (none: nowhere).
class TimelineScope {
 public:
  explicit TimelineScope(Timeline* timeline) : before_(detail::timeline) { detail::timeline = timeline; }
  ~TimelineScope() { detail::timeline = before_; }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  Timeline* before_;
};

/// Marks the rest of the enclosing block.
class TimedScope {
 public:
  explicit TimedScope(SpanKind kind) : timeline_(detail::timeline) {
    if (timeline_ != nullptr) timeline_->begin(kind);
  }
  /// For a layer; nothing if it has no number.
  TimedScope(SpanKind kind, int layer) : timeline_(layer < 0 ? nullptr : detail::timeline) {
    if (timeline_ != nullptr) timeline_->begin(kind, layer);
  }
  ~TimedScope() {
    if (timeline_ != nullptr) timeline_->end();
  }
  TimedScope(const TimedScope&) = delete;
  TimedScope& operator=(const TimedScope&) = delete;

 private:
  Timeline* timeline_;
};

/// One backward: a span around it, and inside spans of the layers whose operations run.
class BackwardSpans {
 public:
  BackwardSpans() : timeline_(detail::timeline) {
    if (timeline_ == nullptr) return;
    timeline_->begin(SpanKind::backward);
    base_ = timeline_->open_count();
  }
  ~BackwardSpans() {
    if (timeline_ != nullptr) timeline_->close_to(base_ - 1);
  }
  BackwardSpans(const BackwardSpans&) = delete;
  BackwardSpans& operator=(const BackwardSpans&) = delete;

  /// An operation that `layer` recorded runs next. Neighbours of one layer share a span.
  void at(int layer) {
    if (timeline_ == nullptr || layer == last_) return;
    last_ = layer;
    timeline_->move_to(base_, SpanKind::backward, layer);
  }

 private:
  Timeline* timeline_;
  std::size_t base_ = 0;
  int last_ = -1;
};

}  // namespace brigade
