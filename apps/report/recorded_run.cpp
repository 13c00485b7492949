// SPDX-License-Identifier: MIT
// apps/report/recorded_run.cpp - config.json, metrics.jsonl, bucket_plan.json and buckets.csv. The trace has its own
// file, apps/report/trace_file.cpp.
#include "apps/report/recorded_run.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "apps/report/text_files.h"
#include "core/check.h"

namespace brigade::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string half_line(const Line& line) {
  return line.where + " ends in the middle of a line, as after a kill: that line is left out.";
}

void add_step(const Members& m, RecordedRun& run) {
  StepLine s;
  s.step = m.whole("step");
  s.epoch = m.whole("epoch", 0);
  s.plan_epoch = m.whole("plan_epoch", 0);
  s.loss = m.number("loss", kNone);
  s.lr = m.number("lr", kNone);
  s.step_ms = m.number("step_ms");
  s.images_per_s = m.number("images_per_s", kNone);
  s.comm_ms = m.number("comm_ms", kNone);
  s.hidden_ms = m.number("hidden_ms", kNone);
  s.exposed_ms = m.number("exposed_ms", s.comm_ms - s.hidden_ms);
  s.waited_ms = m.number("waited_ms", kNone);
  s.bus_gb_s = m.number("bus_gb_s", kNone);
  // -1 stands for "nobody knows", as null does.
  if (m.number("straggler", -1) >= 0) s.straggler = m.whole("straggler");
  s.straggler_ms = m.number("straggler_ms", kNone);
  run.steps.push_back(s);
}

// Lines without "event" are steps and evaluations, told apart by their keys, as they were before there were events.
void add_record(const Json& json, const std::string& where, RecordedRun& run) {
  const Members m(json, where);
  const std::int64_t now = run.steps.empty() ? 0 : run.steps.back().step;
  const std::string event = m.text("event");
  if (event == "evaluation" || (event.empty() && m.has("test_loss"))) {
    run.evaluations.push_back({m.whole("epoch"), m.whole("step", now), m.number("test_loss", kNone),
                               m.number("test_accuracy", kNone)});
  } else if (event == "plan") {
    const std::int64_t epoch = m.whole("plan_epoch", 0);
    run.plan_changes.push_back({m.whole("step", now), epoch, m.text("text", m.text("rule"))});
  } else if (event.empty() && m.has("step_ms")) {
    add_step(m, run);
  }  // Other lines, such as a target that was reached, are not shown.
}

constexpr std::array kColumns{"step",           "plan_epoch",    "bucket",    "bytes",    "parameters",
                              "first_ready_us", "last_ready_us", "launch_us", "start_us", "end_us",
                              "waited_us",      "exposed_us",    "last_rank", "lag_us"};

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

double cell_number(std::string_view cell, const char* column, const std::string& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  BRIGADE_CHECK(error == std::errc() && end == cell.data() + cell.size() && std::isfinite(value),
                "report: ", where, ": ", column, " must be a number; got ", in_quotes(cell));
  return value;
}

// Whole numbers are read as such: a count of bytes as a double would take "1e3" and "-1".
std::int64_t cell_whole(std::string_view cell, const char* column, const std::string& where) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  BRIGADE_CHECK(error == std::errc() && end == cell.data() + cell.size() && value >= 0, "report: ", where,
                ": ", column, " must be a whole number from 0 on; got ", in_quotes(cell));
  return value;
}

// Times may have gone a little negative where clocks of ranks were aligned; the order of a bucket's life may not.
void check_times(const BucketLine& b, const std::string& where) {
  BRIGADE_CHECK(b.first_ready_us <= b.last_ready_us && b.start_us <= b.end_us, "report: ", where,
                ": a bucket must be ready first before last and start before its end; got ready ",
                b.first_ready_us, " to ", b.last_ready_us, " us, transfer ", b.start_us, " to ", b.end_us,
                " us");
}

// A long run keeps not every step in buckets.csv; the trainer says which in config.json, and the page must not hide it.
void note_thinning(RecordedRun& run) {
  const Json::json_pointer every("/files/buckets.csv/then_every_steps"),
      full("/files/buckets.csv/all_steps_until_line");
  if (!run.config.contains(every) || !run.config.contains(full)) return;
  const Json &steps = run.config[every], &lines = run.config[full];
  if (!steps.is_number_integer() || !lines.is_number_integer() || steps.get<std::int64_t>() <= 1) return;
  if (static_cast<std::int64_t>(run.buckets.size()) > lines.get<std::int64_t>())
    run.notes.push_back(str("buckets.csv has every step for its first ", lines.get<std::int64_t>(),
                            " lines, and one of ", steps.get<std::int64_t>(), " steps after them."));
}

}  // namespace

void read_metrics(const fs::path& file, RecordedRun& run) {
  for_each_line(file, [&](const Line& line) {
    // An object that is cut off does not parse: only such a line is a half one.
    if (!line.ended && !Json::accept(line.text)) {
      run.notes.push_back(half_line(line));
    } else {
      add_record(parse_object(line.text, line.where), line.where, run);
    }
  });
}

void read_buckets(const fs::path& file, RecordedRun& run) {
  std::map<std::string, std::size_t, std::less<>> at;  // Column by name: more may be added, in any order.
  for_each_line(file, [&](const Line& line) {
    if (!line.ended) {  // "1234" may be the begin of "12345": no last line without end is to be trusted.
      run.notes.push_back(half_line(line));
      return;
    }
    if (line.text.empty() || line.text.front() == '#') return;
    const std::vector<std::string_view> cells = split(line.text);
    if (at.empty()) {
      for (std::size_t i = 0; i < cells.size(); ++i)
        BRIGADE_CHECK(at.emplace(cells[i], i).second, "report: ", line.where, ": names column ",
                      in_quotes(cells[i]), " twice");
      for (const char* column : kColumns)
        BRIGADE_CHECK(at.contains(column), "report: ", line.where, ": the first line must name a column ",
                      column, "; got ", in_quotes(line.text));
      return;
    }
    BRIGADE_CHECK(cells.size() == at.size(), "report: ", line.where, ": must have ", at.size(),
                  " cells, as the first line has; got ", cells.size());
    const auto cell = [&](const char* column) { return cells[at.find(column)->second]; };
    const auto number = [&](const char* column) { return cell_number(cell(column), column, line.where); };
    const auto whole = [&](const char* column) { return cell_whole(cell(column), column, line.where); };
    BucketLine b;
    b.step = whole("step");
    b.plan_epoch = whole("plan_epoch");
    b.bytes = whole("bytes");
    b.parameters = whole("parameters");
    const std::int64_t bucket = whole("bucket");
    constexpr std::int64_t kMaxBuckets = 100'000;
    BRIGADE_CHECK(bucket < kMaxBuckets, "report: ", line.where, ": bucket must be under ", kMaxBuckets,
                  "; got ", bucket);
    b.bucket = static_cast<int>(bucket);
    b.first_ready_us = number("first_ready_us");
    b.last_ready_us = number("last_ready_us");
    b.launch_us = number("launch_us");
    b.start_us = number("start_us");
    b.end_us = number("end_us");
    b.waited_us = number("waited_us");
    b.exposed_us = number("exposed_us");
    if (!cell("last_rank").empty() && cell("last_rank") != "-1")
      b.last_rank =
          static_cast<int>(std::min<std::int64_t>(whole("last_rank"), std::numeric_limits<int>::max()));
    b.lag_us = cell("lag_us").empty() ? 0 : number("lag_us");
    check_times(b, line.where);
    run.buckets.push_back(b);
  });
}

void read_plan(const fs::path& file, RecordedRun& run) {
  const std::string where = file.string();
  const Json json = parse_object(read_document(file), where);
  const Members m(json, where);
  run.plan_rule = m.text("rule");
  const auto buckets = json.find("buckets");
  BRIGADE_CHECK(buckets != json.end() && buckets->is_array(), "report: ", where,
                ": \"buckets\" must be an array");
  for (const Json& entry : *buckets) {
    const std::string bucket = str(where, ": bucket ", run.plan.size());
    BRIGADE_CHECK(entry.is_object(), "report: ", bucket, " must be an object; got ", entry.type_name());
    PlanBucket out{Members(entry, bucket).whole("bytes"), {}};
    const auto names = entry.find("parameters");
    BRIGADE_CHECK(names != entry.end() && names->is_array(), "report: ", bucket,
                  ": \"parameters\" must be an array");
    for (const Json& parameter : *names) {
      BRIGADE_CHECK(parameter.is_string(), "report: ", bucket, ": \"parameters\" must hold text; got ",
                    parameter.type_name());
      out.parameters.push_back(parameter.get<std::string>());
    }
    run.plan.push_back(std::move(out));
  }
}

RecordedRun read_run(const fs::path& directory) {
  std::error_code error;
  BRIGADE_CHECK(fs::is_directory(directory, error), "report: ", directory.string(), ": must be a directory");
  RecordedRun run;
  run.directory = directory;
  const fs::path config = directory / "config.json";
  BRIGADE_CHECK(fs::exists(config, error), "report: ", directory.string(),
                ": must be the --out directory of a run; it has no config.json");
  run.config = parse_object(read_document(config), config.string());

  const auto read = [&](const char* name, const char* without, auto reader) {
    const fs::path file = directory / name;
    if (fs::exists(file, error)) {
      reader(file, run);
    } else {
      run.notes.push_back(str("There is no ", name, ": ", without, "."));
    }
  };
  read("metrics.jsonl", "steps, losses and their curves are missing", read_metrics);
  read("bucket_plan.json", "the parameters of buckets are not named", read_plan);
  read("buckets.csv", "the life of buckets is not shown", read_buckets);
  note_thinning(run);
  read("trace.json.gz", "the timeline of a step is not shown", read_trace);
  return run;
}

}  // namespace brigade::report
