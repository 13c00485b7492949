// SPDX-License-Identifier: MIT
// apps/report/write_report.cpp - see the header.
#include "apps/report/write_report.h"

#include <algorithm>

#include "apps/report/page_files.h"
#include "apps/report/pictures.h"
#include "apps/report/report_data.h"
#include "apps/telemetry/run_files.h"
#include "core/check.h"

namespace brigade::report {
namespace {

namespace fs = std::filesystem;

// A reader of the old page sees the old page until the new one is whole.
void write_whole(const fs::path& file, const std::string& text) {
  telemetry::write_whole(file, text, "report");
}

// `text` with the one `mark` in it replaced.
std::string put(std::string text, const std::string& mark, std::string_view content) {
  const std::size_t at = text.find(mark);
  BRIGADE_CHECK(at != std::string::npos, "report: the page has no ", mark);
  return text.replace(at, mark.size(), content);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string page(const nlohmann::ordered_json& data) {
  // Inside <script> only "<" could end the data early; names that are no UTF-8 become replacement characters.
  std::string json = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  for (std::size_t at = 0; (at = json.find('<', at)) != std::string::npos;) json.replace(at, 1, "\\u003c");
  std::string script;
  for (const std::string_view part : kPageScripts) script.append(part).append("\n");
  // The data last: whatever stands in it is not searched for marks.
  std::string out = put(std::string(kPageHtml), "<!-- title -->", escaped(data["title"].get<std::string>()));
  out = put(std::move(out), "/* page.css */", kPageStyle);
  out = put(std::move(out), "/* scripts */", script);
  return put(std::move(out), "<!-- data -->", json);
}

std::vector<Strategy> read_strategies(const fs::path& directory) {
  std::vector<Strategy> out;
  std::error_code error;
  if (!fs::is_directory(directory, error)) return out;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.is_directory()) out.push_back({entry.path().filename().string(), read_run(entry.path())});
  // The slowest first: what follows is what each change gained.
  const auto step_ms = [](const Strategy& s) { return summarize(s.files).step_ms.p50; };
  std::sort(out.begin(), out.end(), [&](const Strategy& a, const Strategy& b) {
    const double x = step_ms(a), y = step_ms(b);
    return x != y ? x > y : a.name < b.name;
  });
  return out;
}

}  // namespace

void write_report(std::span<const fs::path> run_directories, const fs::path& file) {
  BRIGADE_CHECK(!run_directories.empty(), "report: needs a run directory; got none");
  const std::vector<Strategy> strategies = read_strategies(run_directories.front() / "strategies");
  std::vector<RecordedRun> runs;
  std::string of;
  std::error_code error;
  // A comparison of strategies need have no run of its own: then its fastest strategy is the run.
  if (!strategies.empty() && !fs::exists(run_directories.front() / "config.json", error)) {
    runs.push_back(strategies.back().files);
    of = strategies.back().name;
  } else {
    runs.push_back(read_run(run_directories.front()));
  }
  for (const fs::path& directory : run_directories.subspan(1)) runs.push_back(read_run(directory));

  const RecordedRun& first = runs.front();
  write_whole(file, page(report_data(runs, strategies, of)));
  if (!fs::is_regular_file(file, error)) return;  // Nothing stands beside /dev/stdout.
  const fs::path beside = file.parent_path();
  if (!first.timelines.empty())
    write_whole(beside / "timeline.svg",
                timeline_svg(first.timelines[first.timelines.size() / 2], title_of(first)));
  if (const RunSummary s = summarize(first); !s.step_ms_values.empty())
    write_whole(beside / "step_time.svg", step_time_svg(s, title_of(first)));
}

void write_report(const fs::path& run_directory, const fs::path& file) {
  write_report({&run_directory, 1}, file);
}

}  // namespace brigade::report
