// SPDX-License-Identifier: MIT
// apps/telemetry/run_files.cpp - see the header.
#include "apps/telemetry/run_files.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/telemetry/gzip.h"
#include "apps/telemetry/tf_events.h"
#include "core/durable_file.h"

namespace brigade::telemetry {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kHistogramEvery = 100;  // Steps.
constexpr std::size_t kFallbackSteps = 5;      // Of a trace whose window was not reached.
constexpr std::string_view kEventsPrefix = "events.out.tfevents.";

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What an earlier run may have left: config.json is what tells.
bool is_of_a_run(const fs::path& file) {
  static constexpr const char* kNames[] = {
      "timeline.svg",  "step_time.svg", "config.json",  "metrics.jsonl",    "buckets.csv",
      "trace.json.gz", "report.html",   "profile.json", "bucket_plan.json", "ddp_logging.json"};
  std::string name = file.filename().string();
  constexpr std::string_view kPart = ".part";  // Of a run that was killed while it wrote.
  if (name.ends_with(kPart)) name.resize(name.size() - kPart.size());
  return name.starts_with(kEventsPrefix) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Of a run that goes on behind step `last`: what came later is told again.
bool is_of_earlier_step(const std::string& line, std::int64_t last) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return false;
  return !json.contains("step") || !json["step"].is_number_integer() ||
         json["step"].get<std::int64_t>() <= last;
}

}  // namespace

void write_whole(const fs::path& path, const std::string& text, const char* what) {
  // A device or a pipe is written to, never replaced.
  std::error_code ignored;
  const bool renames = !fs::exists(path, ignored) || fs::is_regular_file(path, ignored);
  const fs::path partial = renames ? path.string() + ".part" : path.string();
  std::FILE* const file = std::fopen(partial.c_str(), "w");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int error = errno;
  if (file != nullptr && std::fclose(file) != 0 && written) {
    error = errno;  // A full disk shows here.
    written = false;
  }
  if (written && renames && std::rename(partial.c_str(), path.c_str()) != 0) {
    error = errno;
    written = false;
  }
  if (!written && renames && file != nullptr) std::remove(partial.c_str());
  BRIGADE_CHECK(written, what, ": cannot write ", path.string(), "; ", std::strerror(error));
}

RunFiles::RunFiles(const RunFilesOptions& options) : directory_(options.directory), begin_(options.begin) {
  std::error_code error;
  fs::create_directories(directory_, error);
  BRIGADE_CHECK(!error, "--out: cannot create ", directory_.string(), "; ", error.message());
  claim();
  if (options.go_on_after) {
    const std::int64_t last = *options.go_on_after;
    metrics_ = open_after("metrics.jsonl", "",
                          [last](const std::string& line) { return is_of_earlier_step(line, last); });
    buckets_ = open_after("buckets.csv", kBucketsHeader, [this, last](const std::string& line) {
      const bool earlier = std::atoll(line.c_str()) <= last;
      if (earlier) ++bucket_lines_;
      return earlier;
    });
  } else {
    refuse_or_clear(options.overwrite);
    metrics_ = create("metrics.jsonl");
    buckets_ = create("buckets.csv");
    append(buckets_, "buckets.csv", kBucketsHeader);
  }
  events_ = create(event_file_name(wall_time()));
  append(events_, "TensorBoard's event file", version_record(wall_time()));
}

RunFiles::~RunFiles() = default;

// config.json comes only when training begins: until then, and with --overwrite, another run would see a free place.
void RunFiles::claim() {
  claim_ = DirectoryClaim(directory_);
  BRIGADE_CHECK(!claim_.refused(), "--out: ", directory_.string(),
                " is being written by another run; choose another directory, or wait for its end");
}

void RunFiles::refuse_or_clear(bool overwrite) const {
  BRIGADE_CHECK(overwrite || !fs::exists(directory_ / "config.json"), "--out: ", directory_.string(),
                " holds a run already; choose another directory, or give --overwrite to replace it");
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_))
    if (is_of_a_run(entry.path())) old.push_back(entry.path());
  // A run that ended before it had a config.json has nothing to lose: its files are replaced without a word.
  for (const fs::path& path : old) {
    std::error_code error;
    fs::remove(path, error);
    BRIGADE_CHECK(!error, "--out: cannot remove ", path.string(), "; ", error.message());
  }
}

RunFiles::File RunFiles::create(const std::string& name) const {
  const fs::path path = directory_ / name;
  File file(std::fopen(path.c_str(), "w"));
  BRIGADE_CHECK(file != nullptr, "--out: cannot write ", path.string(), "; ", std::strerror(errno));
  return file;
}

RunFiles::File RunFiles::open_after(const std::string& name, const std::string& header,
                                    const std::function<bool(const std::string&)>& keeps) const {
  const fs::path path = directory_ / name;
  std::ifstream old(path);
  std::string text = header, line;
  while (std::getline(old, line) && !old.eof())  // The last line of a killed run may be half a line.
    if (line + "\n" != header && keeps(line)) text += line + "\n";
  write_durably(path, text, "--out");
  File file(std::fopen(path.c_str(), "a"));
  BRIGADE_CHECK(file != nullptr, "--out: cannot write ", path.string(), "; ", std::strerror(errno));
  return file;
}

void RunFiles::append(const File& file, const char* name, const std::string& text) const {
  // Flushed as a whole: a killed run leaves whole lines.
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() && std::fflush(file.get()) == 0;
  BRIGADE_CHECK(written, "--out: cannot write ", name, "; ", std::strerror(errno));
}

void RunFiles::start(const RunShape& shape, const std::string& config) {
  shape_ = shape;
  thinning_ = thinning(shape.steps, shape.buckets);
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(config);
  json["files"]["buckets.csv"] = {{"all_steps_until_line", Thinning::kFullLines},
                                  {"then_every_steps", thinning_.every}};
  json["files"]["trace.json.gz"] = {{"first_step", shape.trace_first}, {"last_step", shape.trace_last}};
  write_whole(directory_ / "config.json", json.dump(1) + "\n", "--out");
}

void RunFiles::plan(const std::string& json) { write_whole(directory_ / "bucket_plan.json", json, "--out"); }

void RunFiles::step(const apps::StepReport& report, const dist::StepRecord& mine,
                    const dist::GatheredStep* gathered, const Timeline& timeline, const BucketLabels& labels,
                    double t_s) {
  last_step_ = report.step;
  append(metrics_, "metrics.jsonl", metrics_line(report, t_s, mine, shape_.ranks, gathered));
  if (thinning_.takes(report.step, bucket_lines_)) {
    append(buckets_, "buckets.csv", bucket_lines(report.step, mine, gathered));
    bucket_lines_ += static_cast<std::int64_t>(mine.buckets.size());
  }

  std::vector<Scalar> scalars{{"lr", report.lr},
                              {"images_per_s", report.images_per_s()},
                              {"exposed_ms", dist::milliseconds(mine.exposed())}};
  if (std::isfinite(report.loss)) scalars.push_back({"loss", report.loss});
  if (report.grad_norm && std::isfinite(*report.grad_norm)) {
    scalars.push_back({"grad_norm", *report.grad_norm});
    grad_norms_.push_back(*report.grad_norm);
  }
  append(events_, "TensorBoard's event file", scalars_record(wall_time(), report.step, scalars));
  for (const dist::BucketRecord& b : mine.buckets)
    latencies_[b.bucket].push_back(dist::milliseconds(b.end - b.start));
  if (report.step % kHistogramEvery == 0) histograms(report.step);

  if (trace_written_ || report.step > shape_.trace_last) return;
  const bool in_window = report.step >= shape_.trace_first;
  if (!in_window && trace_.size() == kFallbackSteps) trace_.erase(trace_.begin());
  // The first of the window drops what was kept in case that it never comes.
  if (in_window && !trace_.empty() && trace_.front().number < shape_.trace_first) trace_.clear();
  trace_.push_back({.number = report.step,
                    .step = gathered != nullptr ? *gathered : dist::GatheredStep{mine.step, {mine}},
                    .labels = labels});
  if (report.step == shape_.trace_last) write_trace(timeline);
}

void RunFiles::evaluation(const apps::EvaluationReport& report) {
  append(metrics_, "metrics.jsonl", evaluation_line(report));
  std::vector<Scalar> scalars{{"accuracy", report.accuracy()}};
  if (std::isfinite(report.loss)) scalars.push_back({"test_loss", report.loss});
  append(events_, "TensorBoard's event file", scalars_record(wall_time(), report.step, scalars));
}

void RunFiles::event(const std::string& json) { append(metrics_, "metrics.jsonl", json + "\n"); }

void RunFiles::histograms(std::int64_t step) {
  std::string records;
  for (auto& [bucket, values] : latencies_)
    records += histogram_record(wall_time(), step, str("bucket_latency_ms/", bucket), values);
  if (!grad_norms_.empty()) records += histogram_record(wall_time(), step, "grad_norms", grad_norms_);
  latencies_.clear();
  grad_norms_.clear();
  append(events_, "TensorBoard's event file", records);
}

void RunFiles::write_trace(const Timeline& timeline) {
  trace_written_ = true;
  if (trace_.empty()) return;
  write_whole(directory_ / "trace.json.gz",
              gzip(chrome_trace(trace_, timeline, {.origin = begin_, .clocks = clocks_})), "--out");
  trace_.clear();
}

void RunFiles::finish(const Timeline& timeline) {
  if (!latencies_.empty() || !grad_norms_.empty()) histograms(last_step_);
  if (!trace_written_) write_trace(timeline);
}

}  // namespace brigade::telemetry
