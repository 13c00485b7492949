// SPDX-License-Identifier: MIT
// tests/report/sample_run.cpp - see the header.
#include "tests/report/sample_run.h"

#include <zlib.h>

#include <fstream>

#include "core/check.h"

namespace brigade::test {
namespace {

constexpr int kSteps = 20;

std::string event(const std::string& name, const std::string& category, int rank, int track, double begin_us,
                  double length_us, const std::string& args) {
  return str(R"({"name":")", name, R"(","cat":")", category, R"(","ph":"X","ts":)", begin_us, R"(,"dur":)",
             length_us, R"(,"pid":)", rank, R"(,"tid":)", track, R"(,"args":{)", args, "}},\n");
}

// Rank 1 begins 100 us later, and all it does is 100 us later.
std::string trace_step(int step) {
  std::string out;
  for (int rank = 0; rank < 2; ++rank) {
    const double t = 1e6 + 1e5 * step + 100 * rank;
    out += event(str("step ", step), "step", rank, 0, t, 99'000, str(R"("step":)", step));
    out += event("forward", "forward", rank, 0, t, 30'000, "");
    out += event("conv1", "forward", rank, 0, t, 10'000, "");
    out += event("backward", "backward", rank, 0, t + 30'000, 50'000, "");
    out += event("conv1", "backward", rank, 0, t + 70'000, 10'000, "");
    out += event("sgd", "optimizer", rank, 0, t + 97'000, 1000, "");
    const double ready[] = {40'000, 60'000, 80'000}, length[] = {5000, 10'000, 20'000};
    for (int b = 0; b < 3; ++b) {
      out += event(
          str("bucket ", b), "bucket", rank, 1, t + ready[b], length[b],
          str(R"("bucket":)", b, R"(,"bytes":)", 1 << (20 + b), R"(,"first_ready_us":)", t + ready[b] - 9000,
              R"(,"last_ready_us":)", t + ready[b], R"(,"launch_us":)", t + ready[b]));
    }
  }
  return out;
}

}  // namespace

SampleRun::SampleRun() {
  config = R"({"model": "resnet18", "precision": "f32", "sync": "bucketed", "lr": 0.01, "run": {"ranks": 2,
    "backend": "threads", "threads": 1, "data": "synthetic", "parameters": 1835008, "steps": 20, "global_batch": 64}})";
  plan = R"({"rule": "size cap 4 MiB", "buckets": [
    {"bytes": 1048576, "dtype": "f32", "parameters": ["fc.bias", "fc.weight"]},
    {"bytes": 2097152, "dtype": "f32", "parameters": ["layer1.weight"]},
    {"bytes": 4194304, "dtype": "f32", "parameters": ["conv2.weight", "conv1.weight"]}]})";
  buckets =
      "step,plan_epoch,bucket,bytes,parameters,first_ready_us,last_ready_us,launch_us,start_us,end_us,waited_"
      "us,"
      "exposed_us,last_rank,lag_us\n";
  for (int step = 1; step <= kSteps; ++step) {
    metrics += str(R"({"step": )", step, R"(, "epoch": 0, "loss": )", 2.0 / step,
                   R"(, "lr": 0.01, "step_ms": 100.0,)",
                   R"( "images_per_s": 640.0, "comm_ms": 35.0, "hidden_ms": 15.0, "exposed_ms": 20.0,)",
                   R"( "overlap_pct": 42.9, "t_s": )", 0.1 * step, R"(, "plan_epoch": 0, "bus_gb_s": 0.2,)",
                   R"( "straggler": 1, "straggler_ms": 0.1})", "\n");
    buckets += str(step, ",0,0,1048576,2,31000,40000,40000,40000,45000,0,0,1,100\n");
    buckets += str(step, ",0,1,2097152,1,60000,60000,60000,60000,70000,0,0,1,100\n");
    buckets += str(step, ",0,2,4194304,2,70000,80000,80000,80000,100000,20000,20000,1,100\n");
  }
  metrics += R"({"event": "evaluation", "step": 20, "epoch": 0, "test_loss": 0.5, "test_accuracy": 0.75})"
             "\n";
  trace = "{\"traceEvents\":[\n" + trace_step(12) + trace_step(13) +
          R"({"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0"}}]})";
}

void SampleRun::write(const std::filesystem::path& directory) const {
  std::filesystem::create_directories(directory);
  if (!config.empty()) write_text(directory / "config.json", config);
  if (!metrics.empty()) write_text(directory / "metrics.jsonl", metrics);
  if (!plan.empty()) write_text(directory / "bucket_plan.json", plan);
  if (!buckets.empty()) write_text(directory / "buckets.csv", buckets);
  if (!trace.empty()) write_gzip(directory / "trace.json.gz", trace);
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

void write_gzip(const std::filesystem::path& file, const std::string& text) {
  const gzFile gz = gzopen(file.c_str(), "wb");
  BRIGADE_CHECK(gz != nullptr, "cannot write ", file.string());
  gzwrite(gz, text.data(), static_cast<unsigned>(text.size()));
  gzclose(gz);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  BRIGADE_CHECK(at != std::string::npos, "no ", from, " in the text");
  return text.replace(at, from.size(), to);
}

}  // namespace brigade::test
