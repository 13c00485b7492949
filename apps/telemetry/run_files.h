// SPDX-License-Identifier: MIT
// apps/telemetry/run_files.h - the files of one run, written by rank 0 while it goes on:
//
//   config.json         flags and facts              bucket_plan.json   the plan in use
//   metrics.jsonl       a line a step or event       buckets.csv        a line a step and bucket
//   trace.json.gz       some steps of all ranks      events.out.tfevents.…   for TensorBoard
//
// What grows is flushed in whole lines and records, what is written at once goes to another name and is renamed: a run
// that is killed leaves files that can be read. Read before: apps/telemetry/step_lines.h. Read next: apps/report.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/telemetry/chrome_trace.h"
#include "apps/telemetry/reports.h"
#include "apps/telemetry/step_lines.h"
#include "core/directory_claim.h"

namespace brigade::telemetry {

struct RunFilesOptions {
  std::filesystem::path directory;
  bool overwrite = false;  ///< Remove the files of an earlier run; else such a directory is refused.
  Clock::time_point begin = Clock::now();  ///< Where t_s and the trace count from.
  /// The run goes on behind this step: what the directory holds of it stays, but for lines of later steps.
  std::optional<std::int64_t> go_on_after = {};
};

/// What is known when training begins.
struct RunShape {
  int ranks = 1;
  std::int64_t steps = 0;
  std::int64_t trace_first = 1, trace_last = 0;  ///< Steps of the trace, from 1.
  std::size_t buckets = 0;                       ///< Of the first plan.
};

class RunFiles {
 public:
  /// Creates the directory and the files that grow. Throws Error naming the path and what to do, also
  /// where another run is under way.
  explicit RunFiles(const RunFilesOptions& options);
  ~RunFiles();  ///< Closes only; see finish().
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;

  const std::filesystem::path& directory() const { return directory_; }

  /// `config`: a JSON object, to which what the files leave out is added.
  void start(const RunShape& shape, const std::string& config);
  /// bucket_plan.json.
  void plan(const std::string& json);

  /// A step, in order. `timeline` names the layers of its spans, `labels` its buckets.
  void step(const apps::StepReport& report, const dist::StepRecord& mine, const dist::GatheredStep* gathered,
            const Timeline& timeline, const BucketLabels& labels, double t_s);
  void evaluation(const apps::EvaluationReport& report);
  /// A line of metrics.jsonl: a whole JSON object, without the end of the line.
  void event(const std::string& json);
  void clocks(const std::vector<dist::ClockOffset>& clocks) { clocks_ = clocks; }

  /// The last histograms, and the trace of a run that ended before its window. Throws Error.
  void finish(const Timeline& timeline);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, CloseFile>;
  void claim();
  void refuse_or_clear(bool overwrite) const;
  File create(const std::string& name) const;
  /// Opens a file that grows, behind the lines for which `keeps(line)`; creates it with `header`.
  File open_after(const std::string& name, const std::string& header,
                  const std::function<bool(const std::string&)>& keeps) const;
  void append(const File& file, const char* name, const std::string& text) const;
  void histograms(std::int64_t step);
  void write_trace(const Timeline& timeline);

  std::filesystem::path directory_;
  DirectoryClaim claim_;
  Clock::time_point begin_;
  File metrics_, buckets_, events_;
  RunShape shape_;
  Thinning thinning_;
  std::int64_t bucket_lines_ = 0;
  std::int64_t last_step_ = 0;
  std::map<int, std::vector<double>> latencies_;  // Milliseconds by bucket, since the last histograms.
  std::vector<double> grad_norms_;
  std::vector<TraceStep> trace_;  // The window so far; before it, the last steps.
  bool trace_written_ = false;
  std::vector<dist::ClockOffset> clocks_;
};

/// Writes `text` under another name, then renames: `path` is always whole. Throws Error naming `what`.
void write_whole(const std::filesystem::path& path, const std::string& text, const char* what);

}  // namespace brigade::telemetry
