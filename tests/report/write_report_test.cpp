// SPDX-License-Identifier: MIT
// tests/report/write_report_test.cpp - the page's data and the pictures; what a browser makes of the page is
// tests/apps/report_test.py.
#include "apps/report/write_report.h"

#include <nlohmann/json.hpp>

#include "apps/report/pictures.h"
#include "core/check.h"
#include "tests/report/sample_run.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

using namespace brigade;
using test::SampleRun;

namespace {

std::string data_text(const std::string& html) {
  const std::string begin = "id=\"data\">";
  const std::size_t at = html.find(begin) + begin.size();
  return html.substr(at, html.find("</script>", at) - at);
}

nlohmann::json page_data(const std::filesystem::path& file) {
  return nlohmann::json::parse(data_text(test::read_text(file)));
}

}  // namespace

TEST_CASE("a page holds the run's figures, its scripts and no address", "[report][page]") {
  const test::TempDir folder;
  SampleRun().write(folder / "run");
  report::write_report(folder / "run", folder / "report.html");
  const std::string html = test::read_text(folder / "report.html");
  for (const char* mark : {"<!-- title -->", "/* page.css */", "/* scripts */", "<!-- data -->"})
    CHECK_THAT(html, !ContainsSubstring(mark));
  CHECK_THAT(html, ContainsSubstring("<title>resnet18, 2 ranks × 1 thread, bucketed</title>"));
  CHECK_THAT(html, ContainsSubstring("class TimelineView") && ContainsSubstring("--exposed:"));
  CHECK_THAT(html, !ContainsSubstring("src=") && !ContainsSubstring("https:"));

  const nlohmann::json data = page_data(folder / "report.html");
  CHECK_THAT(data["advice"].get<std::string>(),
             ContainsSubstring("Bucket 2 (conv2 … conv1) is 20.0 ms exposed"));
  CHECK(data["steps"]["step_ms"].size() == 20);
  CHECK(data["steps"]["every"] == 1);
  CHECK(data["step_ms"]["quantiles"]["p95"] == 100);
  CHECK(data["buckets"][2]["parameters"].size() == 2);
  CHECK(data["timelines"].size() == 2);
  CHECK(data["timelines"][0]["ranks"][1]["buckets"][0] ==
        nlohmann::json{0, 31100, 40100, 40100, 40100, 45100});
  CHECK(data["summary"][0] == nlohmann::json{{"label", "Step"}, {"value", 100}, {"unit", "ms"}});
  CHECK(data["notes"].empty());
  CHECK_THAT(test::read_text(folder / "timeline.svg"), ContainsSubstring("exposed, 20.0 ms"));
  CHECK_THAT(test::read_text(folder / "step_time.svg"), ContainsSubstring("p50 100 ms"));
}

TEST_CASE("names that are markup, or no text at all, stay names", "[report][page]") {
  const test::TempDir folder;
  SampleRun files;
  files.config = test::replaced(files.config, "resnet18", "</script><script>alert(1)</script>");
  files.plan = test::replaced(files.plan, "layer1.weight", "<!--<img src=x>\xff");
  files.write(folder / "run");
  CHECK_THROWS_WITH(report::write_report(folder / "run", folder / "report.html"),
                    ContainsSubstring("bucket_plan.json"));
  files.plan = test::replaced(files.plan, "\xff", "");
  files.write(folder / "run");
  report::write_report(folder / "run", folder / "report.html");
  const std::string html = test::read_text(folder / "report.html");
  CHECK_THAT(html, !ContainsSubstring("<script>alert") && !ContainsSubstring("<img"));
  CHECK(page_data(folder / "report.html")["buckets"][1]["parameters"][0] == "<!--<img src=x>");
}

TEST_CASE("a run that was killed at once has a page that says what is missing", "[report][page][kill]") {
  const test::TempDir folder;
  SampleRun files;
  files.metrics = files.plan = files.buckets = files.trace = "";
  files.write(folder / "run");
  report::write_report(folder / "run", folder / "report.html");
  const nlohmann::json data = page_data(folder / "report.html");
  CHECK(data["notes"].size() == 4);
  CHECK(data["timelines"].empty());
  CHECK(data["summary"].empty());
  CHECK_FALSE(std::filesystem::exists(folder / "timeline.svg"));
}

TEST_CASE("strategies stand side by side, the slowest first", "[report][page][strategies]") {
  const test::TempDir folder;
  SampleRun fast, slow;
  fast.config = test::replaced(fast.config, "\"ranks\": 2", "\"ranks\": 2, \"equal_to_naive\": true");
  for (int i = 0; i < 20; ++i)
    slow.metrics = test::replaced(slow.metrics, "\"step_ms\": 100.0", "\"step_ms\": 150.0");
  fast.write(folder / "run" / "strategies" / "bucketed");
  slow.write(folder / "run" / "strategies" / "naive");
  report::write_report(folder / "run", folder / "report.html");
  const nlohmann::json data = page_data(folder / "report.html");
  REQUIRE(data["strategies"].size() == 2);
  CHECK(data["strategies"][0]["name"] == "naive");
  CHECK(data["strategies"][0]["step_ms"]["quantiles"]["p50"] == 150);
  CHECK_FALSE(data["strategies"][0].contains("equal_to_naive"));
  CHECK(data["strategies"][1]["equal_to_naive"] == true);
  CHECK(data["strategies"][1]["timeline"]["step"] == 13);
  CHECK(data["summary"][0]["value"] == 100);  // The run itself is the fastest of them.
}

TEST_CASE("two runs are compared, with the flags that differ", "[report][page][comparison]") {
  const test::TempDir folder;
  SampleRun a, b;
  b.config = test::replaced(b.config, "0.01", "0.02");
  a.write(folder / "a");
  b.write(folder / "b");
  const std::filesystem::path runs[] = {folder / "a", folder / "b"};
  report::write_report(runs, folder / "report.html");
  const nlohmann::json data = page_data(folder / "report.html");
  REQUIRE(data["runs"].size() == 1);
  CHECK(data["runs"][0]["steps"]["loss"].size() == 20);
  REQUIRE(data["differences"].size() == 1);
  CHECK(data["differences"][0] == nlohmann::json{{"key", "lr"}, {"values", {"0.01", "0.02"}}});
}

TEST_CASE("curves of long runs are thinned, and say so", "[report][page]") {
  const test::TempDir folder;
  SampleRun files;
  for (int step = 21; step <= 9000; ++step)
    files.metrics +=
        str(R"({"step": )", step, R"(, "epoch": 0, "loss": 1, "lr": 1, "step_ms": 100.0})", "\n");
  files.write(folder / "run");
  report::write_report(folder / "run", folder / "report.html");
  const nlohmann::json data = page_data(folder / "report.html");
  CHECK(data["steps"]["every"] == 5);
  CHECK(data["steps"]["step"].size() == 1800);
  CHECK(data["step_ms"]["values"].size() <= 5000);
}

TEST_CASE("a page that cannot be written is an error that names it", "[report][page][error]") {
  const test::TempDir folder;
  SampleRun().write(folder / "run");
  CHECK_THROWS_WITH(report::write_report(folder / "run", folder / "no" / "report.html"),
                    ContainsSubstring("cannot write") && ContainsSubstring("no/report.html"));
}

TEST_CASE("ticks of an axis are 1, 2 or 5 times a power of ten", "[report][pictures]") {
  CHECK(report::tick_step(100, 10) == 10);
  CHECK(report::tick_step(101, 10) == 20);
  CHECK_THAT(report::tick_step(0.3, 10), Catch::Matchers::WithinRel(0.05, 1e-9));
}
