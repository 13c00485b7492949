// SPDX-License-Identifier: MIT
// apps/report/write_report.h - files of runs in, report.html and pictures out. Used by bin/report, and by the trainer
// at the end of a run. Read before: apps/report/recorded_run.h. Read next: apps/report/page/page.html.
#pragma once

#include <filesystem>
#include <span>

namespace brigade::report {

/// Makes the page `file` from the files in `run_directory`, and beside it timeline.svg (if there is a trace) and
/// step_time.svg (if there are steps). Sub-directories of `run_directory`/strategies are shown side by side. Each file
/// is complete or not there: written under another name, then renamed. Error for a file that is none of a run, and
/// where nothing can be written.
void write_report(const std::filesystem::path& run_directory, const std::filesystem::path& file);

/// As above, and compares the first run with the others. At least one run.
void write_report(std::span<const std::filesystem::path> run_directories, const std::filesystem::path& file);

}  // namespace brigade::report
