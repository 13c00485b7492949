// SPDX-License-Identifier: MIT
// apps/common/run_main.cpp - errors become one line and an exit code.
#include "apps/common/run_main.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "core/fault_point.h"
#include "core/one_line.h"
#include "dist/job_watch.h"
#include "dist/launch.h"

namespace brigade::apps {
namespace {

// Whoever ends the process, from any thread and any depth, has to tell the peers.
constinit std::atomic<dist::JobWatch*> watch_of_process{nullptr};
constinit std::atomic_flag ending = ATOMIC_FLAG_INIT;

// Not std::exit: a communication thread may be stuck in a collective, and destructors would wait for it.
[[noreturn]] void end(int code, const std::string& line, const std::string& last_words) {
  while (ending.test_and_set()) pause();  // The other thread's line is enough.
  if (dist::JobWatch* const watch = watch_of_process) watch->leave(last_words);
  write_at_once(STDERR_FILENO, line);
  // The launcher kills the other ranks as soon as one ends: give those that failed for the same reason time
  // to say so (of a usage error only rank 0 speaks, and it need not be the first to end).
  if (dist::launch_environment().size > 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  _exit(code);
}

// "[rank 1/2] " and the rest: of a rank that is a thread the message names it.
std::pair<std::string, std::string> split_rank(const std::string& message) {
  const std::size_t named = message.starts_with("[rank ") ? message.find("] ") : std::string::npos;
  if (named != std::string::npos) return {message.substr(0, named + 2), message.substr(named + 2)};
  const dist::LaunchEnvironment job = dist::launch_environment();
  return {job.size > 1 ? str("[rank ", job.rank, "/", job.size, "] ") : "", message};
}

// "[rank 1/2] error: …"
std::string line_of(const std::string& message) {
  const auto [rank, rest] = split_rank(message);
  return str(rank, "error: ", one_line(rest, std::string::npos), "\n");
}

// Ranks have the same command line, and one of them is enough to print what is wrong with it; but what is wrong on one
// alone (its environment, its files, its devices) nobody else would say.
std::string usage_line(const std::string& text, const dist::JobWatch* watch) {
  const dist::LaunchEnvironment job = dist::launch_environment();
  if (text.empty()) return "";
  if (job.rank == 0) return text + "\n";
  for (const auto end = Clock::now() + std::chrono::milliseconds(300); watch && Clock::now() < end;) {
    if (watch->words_of(0) == text.substr(0, 999)) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return str("[rank ", job.rank, "/", job.size, "] ", text, "\n");
}

// Who starts us may have closed 0, 1 or 2: the next file opened, a checkpoint perhaps, would get that number, and all
// that is printed.
void occupy_standard_descriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != descriptor) _exit(1);
}

// Every rank says which faults happen to it; the seed is the same for all of them only if it was given.
void arm_faults_of_environment() {
  const char* const wanted = std::getenv("BRIGADE_FAULT");
  if (wanted == nullptr || *wanted == 0) return;
  const auto tell = [](const std::string& line) { write_at_once(STDERR_FILENO, line + "\n"); };
  std::uint64_t seed = 0;
  try {
    seed = arm_faults(wanted, tell);
  } catch (const Error& error) {
    throw EarlyExit{2, str("BRIGADE_FAULT=", wanted, ": ", error.what(), "\n")};
  }
  if (dist::launch_environment().rank == 0) tell(str("fault: BRIGADE_FAULT=", wanted, "; seed=", seed));
}

}  // namespace

void write_at_once(int descriptor, std::string_view text) {
  std::fflush(stdout);  // What others have printed comes first.
  while (!text.empty()) {
    // As many lines as a pipe takes without letting others in between; a longer line has to take its chance.
    std::string_view piece = text.substr(0, PIPE_BUF);
    if (piece.size() < text.size())
      if (const std::size_t end = piece.rfind('\n'); end != std::string_view::npos)
        piece = piece.substr(0, end + 1);
    const ssize_t written = ::write(descriptor, piece.data(), piece.size());
    if (written < 0 && errno != EINTR) return;  // Nobody reads any more.
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
}

void end_with_error(const std::string& message) { end(1, line_of(message), split_rank(message).second); }

int run_main(const std::function<void()>& body) {
  occupy_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // A limit on the size of files is an error as a full disk is (EFBIG).
  const auto watch = dist::watch_job(end_with_error);
  watch_of_process = watch.get();
  try {
    arm_faults_of_environment();
    body();
    if (watch) watch->leave("");
    while (ending.test()) pause();
    watch_of_process = nullptr;
    return 0;
  } catch (const EarlyExit& exit) {
    if (exit.code == 0) {
      if (dist::launch_environment().rank == 0) write_at_once(STDOUT_FILENO, exit.text);
      if (watch) watch->leave("");
      watch_of_process = nullptr;
      return 0;
    }
    const std::string words = exit.text.substr(0, exit.text.find_last_not_of('\n') + 1);
    end(exit.code, usage_line(words, watch.get()), words);
  } catch (const std::exception& error) {
    end_with_error(error.what());
  }
}

}  // namespace brigade::apps
