// SPDX-License-Identifier: MIT
// tests/telemetry/step_lines_test.cpp - lines of metrics.jsonl and buckets.csv say what the records say.
#include "apps/telemetry/step_lines.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/test.h"
#include "tests/telemetry/records.h"

using namespace brigade;
using Catch::Matchers::WithinRel;
using namespace brigade::telemetry;
using nlohmann::json;

namespace {

const apps::StepReport kReport{
    .step = 4, .steps = 9, .epoch = 1, .loss = 2.5, .lr = 0.1, .step_ms = 2, .images = 64};

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> out(1);
  for (const char c : line) {
    if (c == ',')
      out.emplace_back();
    else if (c != '\n')
      out.back() += c;
  }
  return out;
}

}  // namespace

TEST_CASE("a step's line has communication, bandwidth, waiting and the straggler", "[telemetry]") {
  const dist::GatheredStep all = test::gathered_step(3, 4);
  const json line = json::parse(metrics_line(kReport, 12.5, all.ranks[0], 4, &all));
  REQUIRE(line["step"] == 4);
  REQUIRE(line["images_per_s"] == 32000);
  REQUIRE(line["comm_ms"] == 0.25);
  REQUIRE(line["hidden_ms"] == 0.15);
  REQUIRE(line["exposed_ms"] == 0.1);
  REQUIRE(line["overlap_pct"] == 60);
  REQUIRE(line["t_s"] == 12.5);
  REQUIRE(line["waited_ms"] == 0.09);
  REQUIRE_THAT(line["bus_gb_s"].get<double>(), WithinRel(1.5 * 12'000 / 250e-6 / 1e9, 1e-3));
  REQUIRE(line["straggler"] == 3);
  REQUIRE(line["straggler_ms"] == 0.02);  // 30 us after the first, 20 us after the median.
  REQUIRE(!line.contains("event"));
}

TEST_CASE("a loss without number and a straggler that nobody knows are null", "[telemetry]") {
  apps::StepReport report = kReport;
  report.loss = std::numeric_limits<double>::quiet_NaN();
  const json line = json::parse(metrics_line(report, 1, test::step_record(3), 4, nullptr));
  REQUIRE(line["loss"].is_null());
  REQUIRE(line["straggler"].is_null());
  REQUIRE(line["straggler_ms"].is_null());
  REQUIRE(!line.contains("grad_norm"));
  report.grad_norm = 1.5;
  REQUIRE(json::parse(metrics_line(report, 1, test::step_record(3), 4, nullptr))["grad_norm"] == 1.5);
}

TEST_CASE("buckets have a line each, with times from the step's begin", "[telemetry]") {
  const dist::GatheredStep all = test::gathered_step(3, 3);
  const std::string lines = bucket_lines(4, all.ranks[0], &all);
  const std::size_t end = lines.find('\n');
  REQUIRE(cells(lines.substr(0, end)) == std::vector<std::string>{"4", "0", "0", "4000", "2", "350.0",
                                                                  "400.0", "410.0", "500.0", "600.0", "0.0",
                                                                  "0.0", "2", "10.0"});
  REQUIRE(cells(lines.substr(end + 1)) == std::vector<std::string>{"4", "0", "1", "8000", "3", "450.0",
                                                                   "700.0", "710.0", "750.0", "900.0", "90.0",
                                                                   "100.0", "2", "10.0"});
  REQUIRE(cells(kBucketsHeader).size() == cells(lines.substr(0, end)).size());
  REQUIRE_THAT(bucket_lines(4, all.ranks[0], nullptr), ContainsSubstring(",-1,0.0\n"));
}

TEST_CASE("a table of many lines is thinned evenly and stays small, and a short one is whole",
          "[telemetry]") {
  REQUIRE(thinning(100, 12).every == 1);
  for (const auto& [steps, buckets] : {std::pair{10'000, 12}, {10'000, 62}, {1'000'000, 1}, {2001, 1}}) {
    const Thinning thin = thinning(steps, static_cast<std::size_t>(buckets));
    std::int64_t lines = 0;
    for (std::int64_t step = 1; step <= steps; ++step)
      if (thin.takes(step, lines)) lines += buckets;
    REQUIRE(lines >= Thinning::kFullLines);
    REQUIRE(lines <= Thinning::kFullLines + Thinning::kThinnedLines + 2 * buckets);
  }
}
