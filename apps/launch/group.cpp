// SPDX-License-Identifier: MIT
// apps/launch/group.cpp - start, wait, pass signals on, end.
#include "apps/launch/group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "apps/launch/processes.h"
#include "core/check.h"
#include "dist/job_watch.h"

namespace brigade::launch {
namespace {

using Clock = std::chrono::steady_clock;

// How long the launcher gets to end what does not end by itself, before we do.
constexpr std::chrono::seconds kForLauncher{5};

void say(const std::string& line) { std::fprintf(stderr, "launch: %s\n", line.c_str()); }

// Signals that are waited for rather than handled, so that nothing here runs at an unexpected moment. What we were
// started to ignore (nohup, a script's background) stays ignored.
sigset_t awaited() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal == SIGCHLD || action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

[[noreturn]] void become(const Command& command, pid_t parent, const std::string& self,
                         const sigset_t& mask) {
  // Its own process group: the terminal's Ctrl-C comes to us alone.
  setpgid(0, 0);
  // If we are killed without a chance to do anything, it ends its ranks.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  // Outside the terminal's foreground, reading from it would stop the process.
  if (isatty(STDIN_FILENO) != 0) dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  // Ranks on this host watch over us, too: their own parent is the launcher.
  setenv("BRIGADE_LAUNCHER", self.c_str(), 1);
  for (const auto& [name, value] : command.environment) {
    if (value.empty())
      unsetenv(name.c_str());
    else
      setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  say(str("cannot run ", command.words[0], ": ", std::strerror(errno)));
  _exit(127);
}

class Group {
 public:
  Group(const Command& command, const GroupRules& rules) : rules_(rules) {
    // Ranks whose launcher is gone become our children: they are found, and ended, all the same.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_DFL);  // Ignored, it would take the exit codes with it.
    const sigset_t set = awaited();
    sigprocmask(SIG_BLOCK, &set, &mask_);
    const pid_t self = getpid();
    const std::string name = dist::name_of_this_process();
    launcher_ = fork();
    BRIGADE_CHECK(launcher_ >= 0, "launch: cannot start a process; ", std::strerror(errno));
    if (launcher_ == 0) become(command, self, name, mask_);
    setpgid(launcher_, launcher_);  // Here too: whoever is first.
  }

  ~Group() { sigprocmask(SIG_SETMASK, &mask_, nullptr); }  // Another group may follow, and inherits it.
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Outcome run() {
    const sigset_t set = awaited();
    while (!reap()) {
      const timespec moment{.tv_sec = 0, .tv_nsec = 100'000'000};
      const int signal = sigtimedwait(&set, nullptr, &moment);
      if (signal > 0 && signal != SIGCHLD) asked_to_end(signal);
      if (Clock::now() >= deadline_) press();
    }
    end_rest();
    return {.code = code(), .was_asked = asked_ != 0};
  }

 private:
  // Whether the launcher has ended.
  bool reap() {
    int status = 0;
    for (pid_t id = 0; (id = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (id != launcher_) continue;
      status_ = status;
      ended_ = true;
    }
    return ended_;
  }

  // Ends of patience, one after another: ranks by themselves, the launcher by its means, the kernel.
  void asked_to_end(int signal) {
    if (asked_ != 0) {
      press();
      return;
    }
    // A terminal that goes away means the same as a request to end, and ranks know that one.
    asked_ = signal == SIGINT ? SIGINT : SIGTERM;
    deadline_ = Clock::now() + rules_.grace;
    // Not by way of the launcher: Open MPI's would end them at once, and Hydra's forgets their exit codes. To other
    // hosts there is no other way.
    const std::vector<pid_t> ranks = rules_.several_hosts ? std::vector<pid_t>{} : ranks_below(launcher_);
    for (const pid_t rank : ranks) send(rank, asked_);
    if (ranks.empty()) kill(launcher_, asked_);
    forced_ = ranks.empty();
    say(str(signal == SIGINT ? "Ctrl-C" : strsignal(signal),
            ": the ranks are told to end; once more ends them at once"));
  }

  void press() {
    if (!forced_) {
      forced_ = true;
      deadline_ = Clock::now() + kForLauncher;
      kill(launcher_, SIGTERM);
      return;
    }
    for (const pid_t id : descendants(getpid())) kill(id, SIGKILL);
    deadline_ = Clock::now() + kForLauncher;
  }

  // Launchers make a rank the leader of a process group: what it has started belongs to it.
  static void send(pid_t rank, int signal) {
    if (getpgid(rank) == rank)
      kill(-rank, signal);
    else
      kill(rank, signal);
  }

  // What outlives its launcher has lost its peers. A moment for those that are ending already.
  static void end_rest() {
    for (const int signal : {0, SIGTERM, SIGKILL}) {
      if (signal != 0)
        for (const pid_t id : descendants(getpid())) kill(id, signal);
      for (const auto until = Clock::now() + std::chrono::seconds(1); Clock::now() < until;) {
        while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
        if (descendants(getpid()).empty()) return;
        usleep(10'000);
      }
    }
  }

  int code() const {
    const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    // Ended by force, or by the signal, which Hydra returns as its number: the request is the reason.
    if (asked_ != 0 && (forced_ || code == asked_)) return 128 + asked_;
    if (asked_ == 0 && code > 128 && code < 128 + 65)
      say(str("a rank was ended by signal ", code - 128, " (", strsignal(code - 128),
              code - 128 == SIGKILL ? "); if nobody sent it, memory ran out: see dmesg" : ")"));
    return code;
  }

  GroupRules rules_;
  sigset_t mask_{};
  pid_t launcher_ = -1;
  int status_ = 0;
  bool ended_ = false;
  int asked_ = 0;        // SIGINT or SIGTERM, once a signal has asked us to end.
  bool forced_ = false;  // The ranks' own time is over, or they have none: the launcher was told to end.
  Clock::time_point deadline_ = Clock::time_point::max();
};

}  // namespace

Outcome run_group(const Command& command, const GroupRules& rules) { return Group(command, rules).run(); }

bool may_restart(const Outcome& outcome) {
  constexpr int kUsage = 2, kSaved = 75, kNotExecutable = 126, kNotFound = 127;
  for (const int code : {0, kUsage, kSaved, kNotExecutable, kNotFound, 128 + SIGINT, 128 + SIGTERM})
    if (outcome.code == code) return false;
  return !outcome.was_asked;
}

}  // namespace brigade::launch
