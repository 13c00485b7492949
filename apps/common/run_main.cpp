// SPDX-License-Identifier: MIT
// apps/common/run_main.cpp - errors become one line and an exit code.
#include "apps/common/run_main.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "dist/launch.h"

namespace brigade::apps {
namespace {

// Not std::exit: a communication thread may be stuck in a collective, and destructors would wait for it.
[[noreturn]] void end(int code, const std::string& line) {
  std::fflush(stdout);
  // One write, so that lines of several ranks do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  // The launcher kills the other ranks as soon as one ends: give those that failed for the same reason time
  // to say so (of a usage error only rank 0 speaks, and it need not be the first to end).
  if (dist::launch_environment().size > 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  _exit(code);
}

std::string prefix(const std::string& message) {
  const dist::LaunchEnvironment job = dist::launch_environment();
  const bool named = job.size == 1 || message.rfind("[rank ", 0) == 0;
  return named ? "" : str("[rank ", job.rank, "/", job.size, "] ");
}

}  // namespace

int run_main(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const EarlyExit& exit) {
    if (exit.code == 0) {
      std::fputs(exit.text.c_str(), stdout);
      return 0;
    }
    // Every rank finds the same usage error: one of them is enough to print it.
    end(exit.code, dist::launch_environment().rank == 0 ? exit.text : "");
  } catch (const std::exception& error) {
    const std::string message = error.what();
    end(1, str(prefix(message), "error: ", message, "\n"));
  }
}

}  // namespace brigade::apps
