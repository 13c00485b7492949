// SPDX-License-Identifier: MIT
// apps/report/trace_file.cpp - trace.json.gz, a Chrome trace, becomes a timeline a step. Of its events we take those
// with a duration ("ph": "X"): pid is the rank; category "step" delimits, "bucket" communicates, all others compute.
// The format: "Trace Event Format", Google.
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "apps/report/recorded_run.h"
#include "apps/report/text_files.h"
#include "core/check.h"
#include "core/regular_file.h"

namespace brigade::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Unpacked; a kilobyte of gzip may hold a megabyte. Traces are written with at most half of this.
constexpr std::size_t kMaxTraceBytes = std::size_t{128} << 20;
constexpr std::int64_t kMaxRanks = 65'536;
// Of what the parser keeps: the event that is open, and what stands beside events. It looks at the latter again after
// each event, of which there may be millions.
constexpr std::int64_t kMaxValues = 1'000;

std::string unpack(const fs::path& file) {
  const RegularFile packed(file, str("report: ", file.string(), ": "), kMaxFileBytes);
  // zlib closes what it is given.
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> gz(gzdopen(dup(packed.descriptor()), "rb"), gzclose);
  BRIGADE_CHECK(gz != nullptr, "report: ", file.string(), ": cannot be read");
  std::string out;
  std::string piece(std::size_t{1} << 16, '\0');
  while (true) {
    const int bytes = gzread(gz.get(), piece.data(), static_cast<unsigned>(piece.size()));
    int code = Z_OK;
    const char* problem = gzerror(gz.get(), &code);
    // A file that stops too early reads to its end and then reports Z_BUF_ERROR.
    BRIGADE_CHECK(bytes >= 0 && code == Z_OK, "report: ", file.string(),
                  ": must be a whole gzip file; zlib says ", in_quotes(problem));
    if (bytes == 0) return out;
    out.append(piece, 0, static_cast<std::size_t>(bytes));
    BRIGADE_CHECK(out.size() <= kMaxTraceBytes, "report: ", file.string(), ": may unpack to ", kMaxTraceBytes,
                  " bytes; has more");
  }
}

SpanKind kind_of(const std::string& category) {
  for (const SpanKind kind : {SpanKind::forward, SpanKind::backward, SpanKind::optimizer, SpanKind::data})
    if (category == name(kind)) return kind;
  return SpanKind::other;
}

// Times of the trace, before a step's begin is subtracted.
struct Step {
  std::int64_t number = 0;
  double begin = 0, end = 0;
};
struct Rank {
  std::vector<Step> steps;
  std::vector<ComputeSpan> spans;
  std::vector<BucketSpan> buckets;
};

class TraceReader {
 public:
  explicit TraceReader(std::string file) : file_(std::move(file)) {}

  /// Takes one event; the parser drops it afterwards, so that a large trace never lies in memory as JSON.
  void add(const Json& event) {
    const std::string where = str(file_, ": event ", ++events_);
    const Members m(event, where);
    if (m.text("ph") != "X") return;
    const std::int64_t pid = m.whole("pid");
    BRIGADE_CHECK(pid < kMaxRanks, "report: ", where, ": \"pid\" must be a rank; got ", pid);
    const double begin = m.number("ts"), length = m.number("dur", 0);
    BRIGADE_CHECK(length >= 0, "report: ", where, ": \"dur\" must not be negative; got ", length);
    static const Json none = Json::object();
    const auto found = event.find("args");
    const Members args(found != event.end() && found->is_object() ? *found : none, where);
    Rank& rank = ranks_[static_cast<int>(pid)];
    const std::string category = m.text("cat");
    if (category == "step") {
      rank.steps.push_back({args.whole("step", number_in(m.text("name"))), begin, begin + length});
    } else if (category == "bucket") {
      const std::int64_t bucket = args.whole("bucket");
      BRIGADE_CHECK(bucket < 100'000, "report: ", where, ": \"bucket\" must be under 100000; got ", bucket);
      rank.buckets.push_back({static_cast<int>(bucket), args.whole("bytes", 0),
                              args.number("first_ready_us", begin), args.number("last_ready_us", begin),
                              args.number("launch_us", begin), begin, begin + length});
    } else {
      rank.spans.push_back({m.text("name"), kind_of(category), begin, begin + length, 0});
    }
  }

  std::vector<Timeline> timelines() {
    std::map<std::int64_t, Timeline> out;
    std::map<std::int64_t, double> origin;
    for (auto& [index, rank] : ranks_) {
      nest(rank.spans);
      std::stable_sort(rank.buckets.begin(), rank.buckets.end(),
                       [](const BucketSpan& a, const BucketSpan& b) { return a.start_us < b.start_us; });
      check_steps(index, rank.steps);
      for (const Step& step : rank.steps) {
        const auto [first, fresh] = origin.emplace(step.number, step.begin);
        if (!fresh) first->second = std::min(first->second, step.begin);
      }
    }
    for (const auto& [index, rank] : ranks_) {
      for (const Step& step : rank.steps) {
        Timeline& timeline = out[step.number];
        timeline.step = step.number;
        timeline.length_us = std::max(timeline.length_us, step.end - origin[step.number]);
        timeline.ranks.push_back(cut(index, rank, step, origin[step.number]));
      }
    }
    std::vector<Timeline> list;
    for (auto& [number, timeline] : out) list.push_back(std::move(timeline));
    return list;
  }

 private:
  // A file's times are rounded: what begins a nanosecond before its neighbour's end is not inside of it.
  static constexpr double kRounding = 0.01;

  static std::int64_t number_in(const std::string& text) {
    const std::size_t at = text.find_first_of("0123456789");
    return at == std::string::npos ? 0 : std::strtoll(text.c_str() + at, nullptr, 10);
  }

  // Sorts by begin, the longer first, and counts the spans around each.
  static void nest(std::vector<ComputeSpan>& spans) {
    std::stable_sort(spans.begin(), spans.end(), [](const ComputeSpan& a, const ComputeSpan& b) {
      return a.begin_us != b.begin_us ? a.begin_us < b.begin_us : a.end_us > b.end_us;
    });
    std::vector<double> open;  // Ends of the spans around the current one.
    for (ComputeSpan& span : spans) {
      while (!open.empty() && open.back() <= span.begin_us + kRounding) open.pop_back();
      span.depth = static_cast<int>(open.size());
      open.push_back(span.end_us);
    }
  }

  // Sorts steps by begin. Those of a rank come one after another; many that cover each other would each get a copy of
  // all spans.
  void check_steps(int rank, std::vector<Step>& steps) const {
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Step& a, const Step& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < steps.size(); ++i)
      BRIGADE_CHECK(steps[i].begin + kRounding >= steps[i - 1].end, "report: ", file_, ": step ",
                    steps[i].number, " of rank ", rank, " must not begin before step ", steps[i - 1].number,
                    " ends");
  }

  // What of `rank`, whose spans are in order, began within `step`, on the step's clock.
  static RankTimeline cut(int index, const Rank& rank, const Step& step, double origin) {
    RankTimeline out{index, {}, {}};
    auto span = std::partition_point(rank.spans.begin(), rank.spans.end(),
                                     [&](const ComputeSpan& s) { return s.begin_us < step.begin; });
    for (; span != rank.spans.end() && span->begin_us < step.end; ++span) {
      out.spans.push_back(*span);
      out.spans.back().begin_us -= origin;
      out.spans.back().end_us -= origin;
    }
    auto bucket = std::partition_point(rank.buckets.begin(), rank.buckets.end(),
                                       [&](const BucketSpan& b) { return b.start_us < step.begin; });
    for (; bucket != rank.buckets.end() && bucket->start_us < step.end; ++bucket) {
      BucketSpan& b = out.buckets.emplace_back(*bucket);
      for (double* time : {&b.first_ready_us, &b.last_ready_us, &b.launch_us, &b.start_us, &b.end_us})
        *time -= origin;
    }
    return out;
  }

  std::string file_;
  std::int64_t events_ = 0;
  std::map<int, Rank> ranks_;
};

}  // namespace

const char* name(SpanKind kind) {
  switch (kind) {
    case SpanKind::forward:
      return "forward";
    case SpanKind::backward:
      return "backward";
    case SpanKind::optimizer:
      return "optimizer";
    case SpanKind::data:
      return "data";
    case SpanKind::other:
      break;
  }
  return "other";
}

void read_trace(const fs::path& file, RecordedRun& run) {
  const std::string text = unpack(file);
  TraceReader reader(file.string());
  constexpr int kMaxDepth = 8;
  std::int64_t kept = 0;                           // Values that lie in memory as JSON…
  std::array<std::int64_t, kMaxDepth + 1> before;  // … and did before the object that is open at a depth.
  const auto take = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    BRIGADE_CHECK(depth <= kMaxDepth, "report: ", file.string(), ": must not nest deeper than ", kMaxDepth,
                  " levels");
    const auto level = static_cast<std::size_t>(depth);
    if (event == Event::object_start) before[level] = kept;
    if (event != Event::object_end && event != Event::array_end) ++kept;
    BRIGADE_CHECK(kept <= kMaxValues, "report: ", file.string(), ": may have ", kMaxValues,
                  " values beside events and in one; has more");
    if (event != Event::object_end || depth == 0 || !parsed.contains("ph")) return true;
    reader.add(parsed);
    kept = before[level];
    return false;
  };
  const Json rest = Json::parse(text, take, /*allow_exceptions=*/false);
  BRIGADE_CHECK(!rest.is_discarded() && rest.is_structured(), "report: ", file.string(),
                ": must hold one JSON object; got ", in_quotes(text));
  run.timelines = reader.timelines();
  if (run.timelines.empty()) run.notes.push_back("trace.json.gz holds no whole step: no timeline is shown.");
}

}  // namespace brigade::report
