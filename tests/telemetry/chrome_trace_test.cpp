// SPDX-License-Identifier: MIT
// tests/telemetry/chrome_trace_test.cpp - the trace as a viewer takes it: tracks, nesting, arrows, and its size.
#include "apps/telemetry/chrome_trace.h"

#include <zlib.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/telemetry/gzip.h"
#include "tests/support/test.h"
#include "tests/telemetry/records.h"

using namespace brigade;
using Catch::Matchers::WithinAbs;
using namespace brigade::telemetry;
using nlohmann::json;

namespace {

Timeline layers() {
  Timeline timeline;
  timeline.set_layers({"", "layer1.0.conv1"});
  return timeline;
}

BucketLabels labels() {
  return std::make_shared<const std::vector<std::string>>(
      std::vector<std::string>{"bucket 0 (fc.\"weight\" + 1 more)", "bucket 1 (conv1.weight + 2 more)"});
}

std::vector<TraceStep> steps(std::initializer_list<std::int64_t> numbers, int ranks) {
  std::vector<TraceStep> out;
  for (const std::int64_t n : numbers) out.push_back({n, test::gathered_step(n, ranks), labels()});
  return out;
}

std::vector<json> events(const json& trace, const std::function<bool(const json&)>& wanted) {
  std::vector<json> out;
  for (const json& event : trace["traceEvents"])
    if (wanted(event)) out.push_back(event);
  return out;
}

}  // namespace

TEST_CASE("a trace has two named tracks a rank and a span for each thing that took time",
          "[telemetry][trace]") {
  const json trace = json::parse(chrome_trace(steps({3, 4}, 2), layers(), {.origin = test::at_us(30'000)}));
  std::set<std::string> names;
  for (const json& event : events(trace, [](const json& e) { return e["ph"] == "M"; }))
    if (event["args"].contains("name"))
      names.insert(
          str(event["pid"].dump(), "/", event["tid"].dump(), " ", event["args"]["name"].get<std::string>()));
  REQUIRE(names == std::set<std::string>{"0/0 rank 0", "0/0 compute", "0/1 communication", "1/0 rank 1",
                                         "1/0 compute", "1/1 communication"});
  const auto spans = events(trace, [](const json& e) { return e["ph"] == "X" && e["pid"] == 1; });
  REQUIRE(spans.size() == 2 * (1 + 6 + 2));
  std::multiset<std::string> categories;
  for (const json& span : spans) categories.insert(span["cat"].get<std::string>());
  REQUIRE(categories.count("step") == 2);
  REQUIRE(categories.count("bucket") == 4);
  REQUIRE(categories.count("forward") == 4);
  REQUIRE(categories.count("data") == 2);
  // Step 3 of rank 1 begins 10 us after the origin.
  const auto step = events(trace, [](const json& e) { return e["name"] == "step 3" && e["pid"] == 1; });
  REQUIRE(step.size() == 1);
  REQUIRE_THAT(step[0]["ts"].get<double>(), WithinAbs(10, 1e-3));
  REQUIRE_THAT(step[0]["dur"].get<double>(), WithinAbs(1000, 1e-3));
  REQUIRE(step[0]["args"]["step"] == 3);
}

TEST_CASE("spans of layers carry their paths, those of buckets what is in them", "[telemetry][trace]") {
  const json trace = json::parse(chrome_trace(steps({0}, 1), layers(), {}));
  REQUIRE(events(trace, [](const json& e) {
            return e["name"] == "layer1.0.conv1" && e["cat"] == "backward" && e["args"]["depth"] == 1;
          }).size() == 1);
  const auto buckets = events(trace, [](const json& e) { return e["ph"] == "X" && e["cat"] == "bucket"; });
  REQUIRE(buckets.size() == 2);
  REQUIRE(buckets[0]["name"] == "bucket 0 (fc.\"weight\" + 1 more)");
  REQUIRE(buckets[0]["tid"] == 1);
  const json& args = buckets[1]["args"];
  for (const auto& [key, value] : {std::pair{"bucket", 1.0},
                                   {"bytes", 8000.0},
                                   {"first_ready_us", 450.0},
                                   {"last_ready_us", 700.0},
                                   {"launch_us", 710.0},
                                   {"waited_us", 90.0}})
    REQUIRE_THAT(args[key].get<double>(), WithinAbs(value, 1e-3));
}

TEST_CASE("on each track spans nest: none overlaps another in part", "[telemetry][trace]") {
  const json trace = json::parse(chrome_trace(steps({1, 2}, 3), layers(), {}));
  std::map<std::string, std::vector<std::pair<double, double>>> tracks;
  for (const json& e : events(trace, [](const json& event) { return event["ph"] == "X"; }))
    tracks[e["pid"].dump() + "/" + e["tid"].dump()].emplace_back(
        e["ts"].get<double>(), e["ts"].get<double>() + e["dur"].get<double>());
  REQUIRE(tracks.size() == 6);
  for (const auto& [track, spans] : tracks)
    for (const auto& [begin, end] : spans)
      for (const auto& [other_begin, other_end] : spans)
        REQUIRE(!(begin < other_begin && other_begin < end && end < other_end));
}

TEST_CASE("an arrow leads from ready over launch to done, inside of spans, each with its own number",
          "[telemetry][trace]") {
  const json trace = json::parse(chrome_trace(steps({1, 2}, 2), layers(), {}));
  std::map<std::int64_t, std::string> phases;
  std::map<std::int64_t, double> last;
  for (const json& e : events(trace, [](const json& event) { return event.contains("id"); })) {
    const auto id = e["id"].get<std::int64_t>();
    REQUIRE((!last.contains(id) || last[id] <= e["ts"].get<double>()));
    last[id] = e["ts"].get<double>();
    phases[id] += e["ph"].get<std::string>();
    const auto around = events(trace, [&](const json& s) {
      return s["ph"] == "X" && s["pid"] == e["pid"] && s["tid"] == e["tid"] && s["ts"] <= e["ts"] &&
             e["ts"].get<double>() <= s["ts"].get<double>() + s["dur"].get<double>();
    });
    REQUIRE(!around.empty());
  }
  REQUIRE(phases.size() == 2 * 2 * 2);
  for (const auto& [id, text] : phases) REQUIRE(text == "stf");
}

TEST_CASE("steps beyond the size limit are left out, and the file says how many", "[telemetry][trace]") {
  const std::string whole = chrome_trace(steps({1, 2, 3}, 2), layers(), {});
  const std::string cut = chrome_trace(steps({1, 2, 3}, 2), layers(), {.max_bytes = whole.size() * 2 / 3});
  const json trace = json::parse(cut);
  REQUIRE(trace["otherData"]["steps_left_out"] == 2);
  REQUIRE(events(trace, [](const json& e) { return e.value("cat", "") == "step"; }).size() == 2);
  REQUIRE(json::parse(whole)["otherData"]["steps_left_out"] == 0);
}

TEST_CASE("gzip packs what zlib unpacks", "[telemetry]") {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i * 7919 % 10'007) + ",";
  for (const std::string& original : {std::string(), std::string("x"), text}) {
    const std::string packed = gzip(original);
    std::string out(original.size() + 100, '\0');
    z_stream stream{};
    REQUIRE(inflateInit2(&stream, 15 + 16) == Z_OK);  // Nothing but gzip.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    REQUIRE(inflate(&stream, Z_FINISH) == Z_STREAM_END);
    out.resize(stream.total_out);
    inflateEnd(&stream);
    REQUIRE(out == original);
  }
  REQUIRE(gzip(text).size() < text.size() / 2);
}
