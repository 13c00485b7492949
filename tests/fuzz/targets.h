// SPDX-License-Identifier: MIT
// tests/fuzz/targets.h - what is fuzzed: one function a parser, which feeds it bytes from anywhere. An Error is the
// right answer to bad ones; any other exception, a broken promise and whatever a sanitizer sees is a finding.
// scripts/fuzz.sh runs each under libFuzzer; tests/fuzz/replay_test.cpp runs all inputs in corpus/ without it.
#pragma once

#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/check.h"

namespace brigade::fuzz {

void buckets(std::string_view bytes);  ///< buckets.csv, by apps/report.
void cifar(std::string_view bytes);    ///< A training file of CIFAR-100.
void command_line(
    std::string_view bytes);          ///< A word a line, those that begin with BRIGADE_ for the environment.
void config(std::string_view bytes);  ///< The file of --config.
void manifest(std::string_view bytes);  ///< manifest.json of a checkpoint.
void metrics(std::string_view bytes);   ///< metrics.jsonl, by apps/report.
void plan(std::string_view bytes);      ///< A bucket plan.
void profile(std::string_view bytes);   ///< profile.json, and a prediction from it.
void safetensors(std::string_view bytes);
void trace(std::string_view bytes);  ///< trace.json.gz, packed or not, by apps/report.

/// A regular file in memory, for parsers that take a path.
class MemoryFile {
 public:
  MemoryFile();
  void hold(std::string_view bytes);  ///< In place of what it held.
  const std::filesystem::path& path() const { return path_; }

 private:
  int descriptor_;
  std::filesystem::path path_;
};

/// A promise of the parser under test; logic_error, which nothing here takes for an answer.
inline void require(bool condition, const char* promise) {
  if (!condition) throw std::logic_error(promise);
}

/// Calls `parse`, which may throw Error. Its message must be one line that a terminal prints as it is.
template <class Parse>
void expect_error_or_success(const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    for (const unsigned char c : std::string_view(error.what()))
      require(c >= 0x20 && c != 0x7f, "an error is one line without control characters");
  }
}

}  // namespace brigade::fuzz
