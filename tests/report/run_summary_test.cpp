// SPDX-License-Identifier: MIT
// tests/report/run_summary_test.cpp - figures drawn from files.
#include "apps/report/run_summary.h"

#include "tests/report/sample_run.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

using namespace brigade;
using test::SampleRun;

namespace {

report::RunSummary summary_of(const SampleRun& files) {
  const test::TempDir folder;
  files.write(folder.path());
  return report::summarize(report::read_run(folder.path()));
}

}  // namespace

TEST_CASE("quantile takes the value below which a share of all lies", "[report][summary]") {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  CHECK(report::quantile(values, 0.5) == 50);
  CHECK(report::quantile(values, 0.95) == 95);
  CHECK(report::quantile(values, 0.99) == 99);
  CHECK(report::quantile(values, 1) == 100);
  CHECK(report::quantile({7}, 0.99) == 7);
  CHECK(report::quantile({}, 0.5) == 0);
}

TEST_CASE("a summary has the medians of steps and of the buckets of the last plan", "[report][summary]") {
  const report::RunSummary s = summary_of({});
  CHECK(s.ranks == 2);
  CHECK(s.steps == 20);
  CHECK(s.step_ms.p50 == 100);
  CHECK(s.images_per_s == 640);
  CHECK(s.exposed_ms == 20);
  CHECK_THAT(s.overlap_pct, Catch::Matchers::WithinRel(100 * 15.0 / 35, 1e-12));
  CHECK(s.straggler == 1);
  CHECK(s.straggler_share == 1);
  CHECK(s.straggler_ms == 0.1);
  REQUIRE(s.buckets.size() == 3);
  CHECK(s.buckets[2].label == "conv2 … conv1");
  CHECK(s.buckets[2].latency.p50 == 20);
  CHECK(s.buckets[2].exposed_ms == 20);
  CHECK(s.buckets[2].last_rank == 1);
  CHECK(s.buckets[2].last_share == 1);
}

TEST_CASE("the first steps are in no figure", "[report][summary]") {
  CHECK(report::warm_up_steps(9) == 0);
  CHECK(report::warm_up_steps(20) == 2);
  CHECK(report::warm_up_steps(1000) == 5);
  SampleRun files;
  files.config = test::replaced(files.config, "\"steps\": 20", "\"steps\": 20, \"warm_up\": 0");
  CHECK(summary_of(files).step_ms_values.size() == 20);
  files = {};
  files.metrics = test::replaced(files.metrics, "\"step_ms\": 100.0", "\"step_ms\": 9000.0");
  CHECK(summary_of(files).step_ms.p99 == 100);
}

TEST_CASE("a step whose figures are unknown does not count as zero", "[report][summary]") {
  SampleRun files;
  for (int i = 0; i < 19; ++i)
    files.metrics = test::replaced(files.metrics, "\"bus_gb_s\": 0.2", "\"bus_gb_s\": null");
  CHECK(summary_of(files).bus_gb_s == 0.2);
  files.metrics = test::replaced(files.metrics, "\"bus_gb_s\": 0.2", "\"bus_gb_s\": null");
  CHECK_FALSE(summary_of(files).has_bus);
}

TEST_CASE("buckets of earlier plans are left out, and names are given only where plan and lines agree",
          "[report][summary]") {
  SampleRun files;
  files.buckets += "21,1,0,7340032,5,31000,80000,80000,80000,110000,0,30000,0,100\n";
  const report::RunSummary s = summary_of(files);
  REQUIRE(s.buckets.size() == 1);
  CHECK(s.buckets[0].latency.p50 == 30);
  CHECK(s.buckets[0].parameters.empty());  // The plan file says 1 MiB for bucket 0.
  CHECK(s.buckets[0].parameter_count == 5);
}

TEST_CASE("a bucket is called by the layers of its first and last parameter", "[report][summary]") {
  CHECK(report::bucket_label({}).empty());
  CHECK(report::bucket_label({"fc.weight"}) == "fc.weight");
  CHECK(report::bucket_label({"fc.bias", "fc.weight"}) == "fc");
  CHECK(report::bucket_label({"fc.bias", "fc.weight", "layer4.1.conv2.weight"}) == "fc … layer4.1.conv2");
}
