// SPDX-License-Identifier: MIT
// apps/common/run_main.h - the one place that catches errors, prints them and ends the process.
#pragma once

#include <functional>
#include <string>

namespace brigade::apps {

/// Thrown where the program should print `text` and end with `code` (0 for --help, 2 for a usage error).
struct EarlyExit {
  int code = 0;
  std::string text;
};

/// Runs `body`. Exit codes: 0 success, 1 failure, 2 usage error. A failure prints one line, "[rank 2/4] error: …" in
/// a job of several processes, and ends this process at once, so that its launcher ends the peers: nothing is
/// left that could wait.
int run_main(const std::function<void()>& body);

/// What run_main() does with a failure, from any thread: for dist::LaunchOptions::on_stuck.
[[noreturn]] void end_with_error(const std::string& message);

}  // namespace brigade::apps
