// SPDX-License-Identifier: MIT
// apps/common/run_main.h - the one place that catches errors, prints them and ends the process.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace brigade::apps {

/// Thrown where the program should print `text`, on one rank, and end with `code` (0 for --help, 2 for a usage error;
/// behind SIGINT or SIGTERM kSavedAndStopped, or 130 and 143 where nothing was saved).
struct EarlyExit {
  int code = 0;
  std::string text;
};

/// EX_TEMPFAIL of sysexits.h: stopped by a signal, all state is saved, start it again with --resume auto.
inline constexpr int kSavedAndStopped = 75;

/// Writes `text` to a file descriptor, whole lines in one call each or several together, so that lines of several
/// processes and threads on one terminal or pipe do not mix (a pipe keeps PIPE_BUF bytes together).
void write_at_once(int descriptor, std::string_view text);

/// Runs `body`. Exit codes: 0 success, 1 failure, 2 usage error. A failure prints one line, "[rank 2/4] error: …" in
/// a job of several processes, and ends this process at once, so that its launcher ends the peers: nothing is
/// left that could wait.
int run_main(const std::function<void()>& body);

/// What run_main() does with a failure, from any thread: for dist::LaunchOptions::on_stuck.
[[noreturn]] void end_with_error(const std::string& message);

}  // namespace brigade::apps
