// SPDX-License-Identifier: MIT
// tests/report/sample_run.h - a run directory with round figures, as text that a test can bend before it is read.
#pragma once

#include <filesystem>
#include <string>

namespace brigade::test {

/// Files of a run of 2 ranks, 20 steps of 100 ms, 3 buckets of 1, 2 and 4 MiB. A transfer takes 5 ms a MiB, backward
/// ends at 80 ms, bucket 2 is ready then and 20 ms exposed. Times in the trace count from 1 s on.
struct SampleRun {
  std::string config, metrics, plan, buckets, trace;
  SampleRun();
  /// Writes the files that are not empty.
  void write(const std::filesystem::path& directory) const;
};

void write_text(const std::filesystem::path& file, const std::string& text);
void write_gzip(const std::filesystem::path& file, const std::string& text);

/// `text` with the first `from` replaced by `to`, which must be there.
std::string replaced(std::string text, const std::string& from, const std::string& to);

}  // namespace brigade::test
