// SPDX-License-Identifier: MIT
// apps/bench/report.h - how every benchmark presents itself: machine, date and command first, a table for people, the
// same figures as JSON for programs, and at the end whether anybody else was computing.
// Read before: apps/bench/timing.h.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/bench/timing.h"
#include "apps/common/flag_checks.h"
#include "dist/process_group.h"

namespace brigade::apps {

/// Fields p5, p50, p95.
nlohmann::ordered_json to_json(const Spread& spread);

class Report {
 public:
  /// `argc` and `argv` are main()'s.
  Report(int argc, char** argv);

  /// Adds --json.
  void add_flags(CLI::App& app);
  /// Under mpirun one rank speaks; the others' reports are silent. Initially on.
  void speak(bool on) { speaks_ = on; }

  std::string machine() const { return json_.at("machine"); }
  std::string date() const { return json_.at("date"); }
  std::string command() const { return json_.at("command"); }

  /// Prints machine, date and command, and starts to watch the load. Throws Error if the file of --json cannot be
  /// written: before the hours, not after.
  void start();
  /// A line for people.
  void line(const std::string& text) const;
  /// A field at the top of the JSON object.
  nlohmann::ordered_json& operator[](const std::string& key) { return json_[key]; }
  /// A record of its list "rows".
  void row(nlohmann::ordered_json fields) { json_["rows"].push_back(std::move(fields)); }
  /// Says what load others made and writes the JSON. `own`: processor time of all processes that took part, in
  /// seconds since start(); negative: this process alone.
  void finish(double own = -1);

 private:
  bool speaks_ = true;
  std::string path_;  // Of --json; empty: none, "-": standard output, and then nothing else goes there.
  nlohmann::ordered_json json_;
  LoadMeter load_;
};

/// Processor seconds of all ranks since each of them had `since` by own_cpu_seconds(). Collective; blocks.
double own_cpu_of_all(dist::ProcessGroup& group, double since);

/// Parses the command line and runs `body`: the whole of a benchmark's main(). Usage errors exit 2, failures 1.
int run_bench(CLI::App& app, int argc, char** argv, const std::function<void()>& body);

}  // namespace brigade::apps
