// SPDX-License-Identifier: MIT
// tests/telemetry/run_files_test.cpp - the files of a run of 10,000 steps, of one that ended early, and of two in one
// directory.
#include "apps/telemetry/run_files.h"

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/test.h"
#include "tests/telemetry/records.h"

using namespace brigade;
using namespace brigade::telemetry;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / str("brigade-files-", getpid(), "-", ++count_)) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  static inline int count_ = 0;
  fs::path path_;
};

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    out.push_back(name.starts_with("events.out") ? "events" : name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

void take_steps(RunFiles& files, std::int64_t first, std::int64_t last, int ranks = 2) {
  const Timeline timeline;
  for (std::int64_t step = first; step <= last; ++step) {
    const dist::GatheredStep all = test::gathered_step(step - 1, ranks);
    files.step({.step = step, .steps = last, .loss = 2, .lr = 0.1, .step_ms = 10, .images = 64}, all.ranks[0],
               ranks > 1 ? &all : nullptr, timeline, nullptr, 1);
  }
}

}  // namespace

TEST_CASE("10,000 steps of 62 buckets stay under 50 MB in all files together", "[telemetry]") {
  const Folder folder;
  RunFiles files({.directory = folder.path()});
  files.start({.ranks = 2, .steps = 10'000, .trace_first = 11, .trace_last = 15, .buckets = 62}, "{}");
  dist::GatheredStep all = test::gathered_step(0, 2);
  for (dist::StepRecord& record : all.ranks) {
    const dist::BucketRecord bucket = record.buckets[0];
    record.buckets.clear();
    for (int b = 0; b < 62; ++b) {
      record.buckets.push_back(bucket);
      record.buckets.back().bucket = b;
    }
  }
  for (std::int64_t step = 1; step <= 10'000; ++step)
    files.step({.step = step, .steps = 10'000, .loss = 2.3456789, .lr = 0.1, .step_ms = 10, .images = 64},
               all.ranks[0], &all, Timeline(), nullptr, 1);
  files.finish(Timeline());
  std::uintmax_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) bytes += entry.file_size();
  REQUIRE(bytes < 50'000'000);
  REQUIRE(lines_of(folder / "metrics.jsonl").size() == 10'000);
  const auto config = nlohmann::json::parse(std::ifstream(folder / "config.json"));
  const auto every = config["files"]["buckets.csv"]["then_every_steps"].get<std::int64_t>();
  REQUIRE(every > 1);
  // Beyond the first lines the steps are those that config.json says.
  const auto table = lines_of(folder / "buckets.csv");
  for (std::size_t i = 1 + Thinning::kFullLines + 62; i < table.size(); ++i)
    REQUIRE(std::stoll(table[i]) % every == 0);
}

TEST_CASE("the trace is written as soon as its window is over, and before that by finish", "[telemetry]") {
  const Folder whole, early;
  {
    RunFiles files({.directory = whole.path()});
    files.start({.ranks = 2, .steps = 20, .trace_first = 11, .trace_last = 15, .buckets = 2}, "{}");
    take_steps(files, 1, 14);
    REQUIRE(!fs::exists(whole / "trace.json.gz"));
    take_steps(files, 15, 15);
    REQUIRE(fs::exists(whole / "trace.json.gz"));
    REQUIRE(names_in(whole.path()) == std::vector<std::string>{"buckets.csv", "config.json", "events",
                                                               "metrics.jsonl", "trace.json.gz"});
  }
  RunFiles files({.directory = early.path()});
  files.start({.ranks = 2, .steps = 20, .trace_first = 11, .trace_last = 15, .buckets = 2}, "{}");
  take_steps(files, 1, 8);
  files.finish(Timeline());
  REQUIRE(fs::exists(early / "trace.json.gz"));
}

TEST_CASE("lines are in the files as soon as a step is over", "[telemetry]") {
  const Folder folder;
  RunFiles files({.directory = folder.path()});
  files.start({.ranks = 2, .steps = 20, .trace_first = 11, .trace_last = 15, .buckets = 2},
              "{\"model\": \"mlp\"}");
  take_steps(files, 1, 3);
  files.evaluation({.epoch = 0, .step = 3, .images = 10, .correct = 4, .loss = 2});
  // Nothing is closed: as after a kill.
  const auto lines = lines_of(folder / "metrics.jsonl");
  REQUIRE(lines.size() == 4);
  for (const std::string& line : lines) REQUIRE(nlohmann::json::accept(line));
  const auto evaluation = nlohmann::json::parse(lines.back());
  REQUIRE(evaluation["event"] == "evaluation");
  REQUIRE(evaluation["test_accuracy"] == 0.4);
  REQUIRE(lines_of(folder / "buckets.csv").size() == 1 + 3 * 2);
  REQUIRE(nlohmann::json::parse(std::ifstream(folder / "config.json"))["model"] == "mlp");
}

TEST_CASE("a directory with a run is refused with advice, and replaced on request", "[telemetry][error]") {
  const Folder folder;
  {
    RunFiles files({.directory = folder.path()});
    files.start({.steps = 5}, "{}");
    take_steps(files, 1, 5, 1);
    files.finish(Timeline());
  }
  std::ofstream(folder / "notes.txt") << "mine";
  const auto before = lines_of(folder / "metrics.jsonl");
  REQUIRE_THROWS_WITH(
      RunFiles({.directory = folder.path()}),
      ContainsSubstring(folder.path().string()) &&
          ContainsSubstring("holds a run already; choose another directory, or give --overwrite"));
  REQUIRE(lines_of(folder / "metrics.jsonl") == before);
  const RunFiles files({.directory = folder.path(), .overwrite = true});
  REQUIRE(lines_of(folder / "metrics.jsonl").empty());
  REQUIRE(names_in(folder.path()) ==
          std::vector<std::string>{"buckets.csv", "events", "metrics.jsonl", "notes.txt"});
}

TEST_CASE("a directory is one run's until it ends, also before it has a config.json and with --overwrite",
          "[telemetry][error]") {
  const Folder folder;
  {
    RunFiles first({.directory = folder.path()});
    for (const bool overwrite : {false, true})
      REQUIRE_THROWS_WITH(RunFiles({.directory = folder.path(), .overwrite = overwrite}),
                          ContainsSubstring(folder.path().string()) &&
                              ContainsSubstring("is being written by another run; choose another directory"));
    first.start({.steps = 3}, "{}");
    take_steps(first, 1, 3, 1);
    REQUIRE(lines_of(folder / "metrics.jsonl").size() == 3);
  }
  REQUIRE_NOTHROW(RunFiles({.directory = folder.path(), .overwrite = true}));
}

TEST_CASE("nothing that an earlier run left is taken for the next one's, nor what it was writing when killed",
          "[telemetry]") {
  const Folder folder;
  for (const char* name :
       {"profile.json", "report.html", "timeline.svg", "trace.json.gz.part", "config.json.part"})
    std::ofstream(folder / name) << "old";
  const RunFiles files({.directory = folder.path(), .overwrite = true});
  REQUIRE(names_in(folder.path()) == std::vector<std::string>{"buckets.csv", "events", "metrics.jsonl"});
}

TEST_CASE("a file is written whole or not at all, and devices are not replaced", "[telemetry][error]") {
  const Folder folder;
  write_whole(folder / "x", "old", "--x");
  write_whole(folder / "x", "new", "--x");
  REQUIRE(lines_of(folder / "x") == std::vector<std::string>{"new"});
  REQUIRE(names_in(folder.path()) == std::vector<std::string>{"x"});
  REQUIRE_THROWS_WITH(write_whole(folder / "none/x", "text", "--x"), ContainsSubstring("--x: cannot write"));
  write_whole("/dev/null", "text", "--x");
  REQUIRE(fs::is_character_file("/dev/null"));
}
