// SPDX-License-Identifier: MIT
// tests/report/recorded_run_test.cpp - what killed runs and strangers leave: read as far as it goes, or refused by
// file, line and rule.
#include "apps/report/recorded_run.h"

#include <cmath>

#include "core/check.h"
#include "tests/report/sample_run.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

using namespace brigade;
using test::SampleRun;

namespace {

report::RecordedRun read(const SampleRun& files) {
  const test::TempDir folder;
  files.write(folder.path());
  return report::read_run(folder.path());
}

std::string refusal(const SampleRun& files) {
  try {
    read(files);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace

TEST_CASE("a run is read as it was written", "[report][files]") {
  const report::RecordedRun run = read({});
  CHECK(run.notes.empty());
  REQUIRE(run.steps.size() == 20);
  CHECK(run.steps[1].loss == 1);
  CHECK(run.steps[19].step == 20);
  REQUIRE(run.evaluations.size() == 1);
  CHECK(run.evaluations[0].accuracy == 0.75);
  CHECK(run.plan_rule == "size cap 4 MiB");
  CHECK(run.plan.at(2).parameters == std::vector<std::string>{"conv2.weight", "conv1.weight"});
  REQUIRE(run.buckets.size() == 60);
  CHECK(run.buckets[2].exposed_us == 20'000);
}

TEST_CASE("a trace becomes a timeline a step on the clock of the rank that began first",
          "[report][files][trace]") {
  const report::RecordedRun run = read({});
  REQUIRE(run.timelines.size() == 2);
  const report::Timeline& t = run.timelines[0];
  CHECK(t.step == 12);
  CHECK(t.length_us == 99'100);
  REQUIRE(t.ranks.size() == 2);
  REQUIRE(t.ranks[0].spans.size() == 5);  // The step itself is the frame.
  CHECK(t.ranks[0].spans[0].name == "forward");
  CHECK(t.ranks[0].spans[0].depth == 0);
  CHECK(t.ranks[0].spans[1].name == "conv1");
  CHECK(t.ranks[0].spans[1].depth == 1);
  CHECK(t.ranks[0].spans[2].kind == report::SpanKind::backward);
  CHECK(t.ranks[0].spans[2].depth == 0);
  CHECK(t.ranks[1].spans[0].begin_us == 100);
  REQUIRE(t.ranks[1].buckets.size() == 3);
  CHECK(t.ranks[1].buckets[2].start_us == 80'100);
  CHECK(t.ranks[1].buckets[2].end_us == 100'100);
  CHECK(t.ranks[1].buckets[2].first_ready_us == 71'100);
}

TEST_CASE("lines from before there were events are read too", "[report][files]") {
  SampleRun files;
  files.metrics =
      R"({"step": 1, "epoch": 0, "loss": null, "lr": 0.01, "step_ms": 5.0, "images_per_s": 1.0, "comm_ms": 2.0,)"
      R"( "hidden_ms": 0.5, "exposed_ms": 1.5, "overlap_pct": 25.0})"
      "\n"
      R"({"epoch": 0, "test_loss": 1.5, "test_accuracy": 0.5})"
      "\n"
      R"({"target_accuracy": 0.4, "epoch": 0, "reached": 0.5, "seconds": 1.0})"
      "\n";
  const report::RecordedRun run = read(files);
  REQUIRE(run.steps.size() == 1);
  CHECK(std::isnan(run.steps[0].loss));
  CHECK(std::isnan(run.steps[0].bus_gb_s));
  CHECK(run.steps[0].straggler == -1);
  REQUIRE(run.evaluations.size() == 1);
  CHECK(run.evaluations[0].step == 1);
}

TEST_CASE("a last line cut off by a kill is left out, with a note", "[report][files][kill]") {
  SampleRun files;
  files.metrics += R"({"step": 21, "epoch": 0, "los)";
  files.buckets += "21,0,0,1048576,2,31000,40000,40000,40000,450";  // Of 45000.
  const report::RecordedRun run = read(files);
  CHECK(run.steps.size() == 20);
  CHECK(run.buckets.size() == 60);
  REQUIRE(run.notes.size() == 2);
  CHECK_THAT(run.notes[0], ContainsSubstring("metrics.jsonl:22") && ContainsSubstring("left out"));
  CHECK_THAT(run.notes[1], ContainsSubstring("buckets.csv:62"));
}

TEST_CASE("files that are missing are noted, and without config.json it is no run", "[report][files]") {
  SampleRun files;
  files.metrics = files.plan = files.buckets = files.trace = "";
  const report::RecordedRun run = read(files);
  REQUIRE(run.notes.size() == 4);
  CHECK_THAT(run.notes[3], ContainsSubstring("no trace.json.gz") && ContainsSubstring("timeline"));
  files.config = "";
  CHECK_THAT(refusal(files), ContainsSubstring("it has no config.json"));
  CHECK_THROWS_WITH(report::read_run("/no/such/run"), ContainsSubstring("/no/such/run: must be a directory"));
}

TEST_CASE("lines that are none are refused by file, line and rule", "[report][files][error]") {
  SampleRun files;
  files.metrics = test::replaced(files.metrics, "\"step\": 3,", "\"step\": -3,");
  CHECK_THAT(refusal(files),
             ContainsSubstring("metrics.jsonl:3: \"step\" must be a whole number from 0 on; got \"-3\""));
  files = {};
  files.metrics = test::replaced(files.metrics, "\"step_ms\": 100.0", "\"step_ms\": \"fast\"");
  CHECK_THAT(refusal(files), ContainsSubstring("metrics.jsonl:1: \"step_ms\" must be a number"));
  files = {};
  files.metrics = "[1, 2]\n";
  CHECK_THAT(refusal(files), ContainsSubstring("metrics.jsonl:1: must be a JSON object; got \"[1, 2]\""));
  files = {};
  files.buckets = test::replaced(files.buckets, "\n1,0,1,2097152", "\n1,0,1,2e6");
  CHECK_THAT(refusal(files),
             ContainsSubstring("buckets.csv:3: bytes must be a whole number from 0 on; got \"2e6\""));
  files = {};
  files.buckets = test::replaced(files.buckets, "45000,0,0,1,100\n", "nan,0,0,1,100\n");
  CHECK_THAT(refusal(files), ContainsSubstring("buckets.csv:2: end_us must be a number; got \"nan\""));
  files = {};
  files.buckets = test::replaced(files.buckets, "45000,0,0,1,100\n", "45000,0,0,1\n");
  CHECK_THAT(refusal(files),
             ContainsSubstring("buckets.csv:2: must have 14 cells, as the first line has; got 13"));
  files = {};
  files.buckets = test::replaced(files.buckets, "40000,45000", "40000,35000");
  CHECK_THAT(refusal(files),
             ContainsSubstring("buckets.csv:2: a bucket must") && ContainsSubstring("start before its end"));
  files = {};
  files.buckets = test::replaced(files.buckets, "exposed_us", "exposed");
  CHECK_THAT(refusal(files),
             ContainsSubstring("buckets.csv:1: the first line must name a column exposed_us"));
  files = {};
  files.buckets = test::replaced(files.buckets, "exposed_us", "exposed_us,exposed_us");
  CHECK_THAT(refusal(files), ContainsSubstring("buckets.csv:1: names column \"exposed_us\" twice"));
  files = {};
  files.plan = R"({"rule": "r", "buckets": [{"bytes": 4, "parameters": [7]}]})";
  CHECK_THAT(refusal(files),
             ContainsSubstring("bucket_plan.json: bucket 0: \"parameters\" must hold text; got number"));
}

TEST_CASE("files made to hurt are refused before they do", "[report][files][error]") {
  SampleRun files;
  files.metrics = "{\"a\": " + std::string(60'000, '[') + "\n";
  CHECK_THAT(refusal(files), ContainsSubstring("metrics.jsonl:1: must not nest deeper"));
  files.metrics = std::string(70'000, ' ') + "\n";
  CHECK_THAT(refusal(files), ContainsSubstring("metrics.jsonl:1: a line may have 65536 bytes; got 70000"));
  files = {};
  files.trace = "{\"traceEvents\": " + std::string(1'000'000, '[');
  CHECK_THAT(refusal(files), ContainsSubstring("trace.json.gz: must not nest deeper"));
  files.trace = std::string(std::size_t{129} << 20, ' ');  // An eighth of a megabyte on the disk.
  CHECK_THAT(refusal(files), ContainsSubstring("trace.json.gz: may unpack to"));
  files = {};
  files.trace = test::replaced(files.trace, "\"pid\":0", "\"pid\":99999999");
  CHECK_THAT(refusal(files), ContainsSubstring("event 1: \"pid\" must be a rank; got 99999999"));
  files = {};
  files.trace = test::replaced(files.trace, "\"dur\":30000", "\"dur\":-1");
  CHECK_THAT(refusal(files), ContainsSubstring("event 2: \"dur\" must not be negative"));
}

TEST_CASE("a trace that is cut off is refused", "[report][files][error]") {
  const test::TempDir folder;
  SampleRun().write(folder.path());
  const std::filesystem::path trace = folder / "trace.json.gz";
  std::filesystem::resize_file(trace, std::filesystem::file_size(trace) / 2);
  CHECK_THROWS_WITH(report::read_run(folder.path()),
                    ContainsSubstring("trace.json.gz: must be a whole gzip file"));
  test::write_text(trace, "not packed");
  CHECK_THROWS_WITH(report::read_run(folder.path()),
                    ContainsSubstring("trace.json.gz: must hold one JSON object"));
}

TEST_CASE("files that would make their reader work for ever are refused", "[report][files][error]") {
  SampleRun covers, beside, deep;
  const std::string step =
      R"({"name":"step 1","cat":"step","ph":"X","ts":0,"dur":10,"pid":0,"args":{"step":1}})";
  covers.trace = "[" + step + "," + step + "]";
  CHECK_THAT(refusal(covers), ContainsSubstring("step 1 of rank 0 must not begin before step 1 ends"));
  beside.trace = "[" + step;
  for (int i = 0; i < 1000; ++i) beside.trace += ",0";
  beside.trace += "]";
  CHECK_THAT(refusal(beside), ContainsSubstring("may have 1000 values beside events"));
  deep.config = std::string(1'000'000, '[');
  CHECK_THAT(refusal(deep), ContainsSubstring("config.json: must not nest deeper than 16 levels"));
}
