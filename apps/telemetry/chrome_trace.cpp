// SPDX-License-Identifier: MIT
// apps/telemetry/chrome_trace.cpp - events as text, one a line. Times have three decimals of a microsecond: what the
// clock has, so that spans which touch do not overlap.
#include "apps/telemetry/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace brigade::telemetry {
namespace {

enum Track { kCompute = 0, kCommunication = 1 };
constexpr const char* kWaiting = "wait for buckets";  // What Ddp marks as SpanKind::other.

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  explicit Writer(Clock::time_point origin) : origin_(origin) {}

  void add(const TraceStep& step, const Timeline& timeline) {
    for (std::size_t rank = 0; rank < step.step.ranks.size(); ++rank) {
      const dist::StepRecord& record = step.step.ranks[rank];
      const dist::Interval whole = record.whole.begin < record.whole.end ? record.whole : record.backward;
      span(str("step ", step.number), "step", whole.begin, whole.end, rank, kCompute,
           fmt::format("\"step\":{},\"plan_epoch\":{}", step.number, record.plan_epoch));
      for (const TimedSpan& s : record.spans)
        span(s.kind == SpanKind::other ? kWaiting : timeline.name(s), name(s.kind), s.begin, s.end, rank,
             kCompute, fmt::format("\"depth\":{}", s.depth));
      for (const dist::BucketRecord& b : record.buckets) bucket(b, record, step.labels, rank);
    }
  }

  void metadata(std::string_view what, std::size_t rank, int track, const std::string& args) {
    begin_event();
    fmt::format_to(std::back_inserter(text_), R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{{}}}}})",
                   what, rank, track, args);
  }

  std::size_t bytes() const { return text_.size(); }
  void shrink_to(std::size_t bytes) { text_.resize(bytes); }
  const std::string& text() const { return text_; }

 private:
  double us(Clock::time_point t) const {
    return std::chrono::duration<double, std::micro>(t - origin_).count();
  }

  void begin_event() { text_ += text_.empty() ? "\n" : ",\n"; }

  void span(const std::string& what, std::string_view category, Clock::time_point begin,
            Clock::time_point end, std::size_t rank, Track track, const std::string& args) {
    begin_event();
    fmt::format_to(
        std::back_inserter(text_),
        R"({{"name":{},"cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{},"args":{{{}}}}})",
        json_text(what), category, us(begin), us(end) - us(begin), rank, static_cast<int>(track), args);
  }

  void bucket(const dist::BucketRecord& b, const dist::StepRecord& record, const BucketLabels& labels,
              std::size_t rank) {
    const auto index = static_cast<std::size_t>(b.bucket);
    const std::string label = labels && index < labels->size() ? (*labels)[index] : str("bucket ", b.bucket);
    span(label, "bucket", b.start, b.end, rank, kCommunication,
         fmt::format(R"("bucket":{},"bytes":{},"parameters":{},"plan_epoch":{},"first_ready_us":{:.3f},)"
                     R"("last_ready_us":{:.3f},"launch_us":{:.3f},"waited_us":{:.3f})",
                     b.bucket, b.bytes, b.parameters, record.plan_epoch, us(b.first_ready), us(b.last_ready),
                     us(b.launch), std::chrono::duration<double, std::micro>(b.waited).count()));
    // An arrow ends in the span that encloses its end: just inside of the bucket's.
    const Clock::time_point done = std::max(b.start, b.end - std::chrono::nanoseconds(1));
    flow("s", std::min(b.last_ready, b.launch), rank, kCompute);
    flow("t", b.launch, rank, kCompute);
    flow("f", done, rank, kCommunication);
    ++flows_;
  }

  void flow(std::string_view phase, Clock::time_point t, std::size_t rank, Track track) {
    begin_event();
    fmt::format_to(
        std::back_inserter(text_),
        R"({{"name":"ready, launch, done","cat":"bucket","ph":"{}","id":{},"ts":{:.3f},"pid":{},"tid":{}{}}})",
        phase, flows_, us(t), rank, static_cast<int>(track), phase == "f" ? R"(,"bp":"e")" : "");
  }

  Clock::time_point origin_;
  std::string text_;
  std::int64_t flows_ = 0;
};

}  // namespace

std::string chrome_trace(const std::vector<TraceStep>& steps, const Timeline& timeline,
                         const TraceOptions& options) {
  Writer out(options.origin);
  std::size_t ranks = 0, left_out = 0;
  for (const TraceStep& step : steps) ranks = std::max(ranks, step.step.ranks.size());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    out.metadata("process_name", rank, kCompute, fmt::format("\"name\":\"rank {}\"", rank));
    if (rank > 0 && rank < options.clocks.size())
      out.metadata(
          "process_labels", rank, kCompute,
          fmt::format("\"labels\":\"clock within {:.1f} us of rank 0's\"",
                      std::chrono::duration<double, std::micro>(options.clocks[rank].error).count()));
    out.metadata("process_sort_index", rank, kCompute, fmt::format("\"sort_index\":{}", rank));
    out.metadata("thread_name", rank, kCompute, R"("name":"compute")");
    out.metadata("thread_name", rank, kCommunication, R"("name":"communication")");
  }
  for (const TraceStep& step : steps) {
    const std::size_t before = out.bytes();
    if (left_out == 0) out.add(step, timeline);
    if (out.bytes() <= options.max_bytes && left_out == 0) continue;
    out.shrink_to(before);
    ++left_out;
  }
  return fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"steps_left_out\":{}}},\"traceEvents\":[{}\n]}}\n",
      left_out, out.text());
}

}  // namespace brigade::telemetry
