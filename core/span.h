// SPDX-License-Identifier: MIT
// core/span.h - scoped spans: a stretch of code says its name to whoever listens on this thread. Nobody listens unless
// asked to, and then a span costs one load and one predictable branch. Marked are the functions of kernels/ops.h.
// Read before: core/stream.h (Clock).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "core/stream.h"

namespace brigade {

/// What a span works on: {"x", [32, 64, 32, 32]}.
struct SpanDetail {
  std::string_view name;
  Dims value;
  friend bool operator==(const SpanDetail&, const SpanDetail&) = default;
};
using SpanDetails = std::vector<SpanDetail>;

/// Hears the spans of one thread. They nest: end() is that of the last begin() without one. Neither may throw.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void begin(std::string_view name, const SpanDetails& details) = 0;
  virtual void end() = 0;
};

namespace detail {
inline constinit thread_local SpanSink* span_sink = nullptr;
}  // namespace detail

/// Marks the rest of the enclosing block. Names, also those of details, are literals.
class Span {
 public:
  explicit Span(std::string_view name) : sink_(detail::span_sink) {
    if (sink_ != nullptr) [[unlikely]]
      sink_->begin(name, {});
  }
  /// `details()` returns SpanDetails; called only if somebody listens.
  template <class Details>
  Span(std::string_view name, const Details& details) : sink_(detail::span_sink) {
    if (sink_ != nullptr) [[unlikely]]
      sink_->begin(name, details());
  }
  ~Span() {
    if (sink_ != nullptr) [[unlikely]]
      sink_->end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  SpanSink* sink_;  // Of the beginning: a listener that comes or goes meanwhile must not hear half a span.
};

/// Makes `sink` the listener of this thread; at the end of the scope the one before is it again.
class SpanListener {
 public:
  explicit SpanListener(SpanSink& sink) : before_(detail::span_sink) { detail::span_sink = &sink; }
  ~SpanListener() { detail::span_sink = before_; }
  SpanListener(const SpanListener&) = delete;
  SpanListener& operator=(const SpanListener&) = delete;

 private:
  SpanSink* before_;
};

/// Adds up time by name.
class SpanTotals final : public SpanSink {
 public:
  struct Total {
    std::int64_t calls = 0;
    Clock::duration self{};  ///< Without the spans inside: these add up to the time that is covered at all.
  };
  void begin(std::string_view name, const SpanDetails& details) override;
  void end() override;

  const std::map<std::string, Total, std::less<>>& totals() const { return totals_; }
  Total of(std::string_view name) const;  ///< Zero for a name that was not heard.
  void clear() { totals_.clear(); }       ///< Not while a span is open.

 private:
  struct Open {
    Total* total;
    Clock::time_point begin;
    Clock::duration inside;
  };
  std::map<std::string, Total, std::less<>> totals_;  // Nodes stay where they are.
  std::vector<Open> open_;
};

/// Writes down what was called on what, in order of beginning.
class SpanList final : public SpanSink {
 public:
  struct Entry {
    std::string_view name;
    SpanDetails details;
  };
  void begin(std::string_view name, const SpanDetails& details) override {
    entries_.push_back({name, details});
  }
  void end() override {}
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace brigade
