// SPDX-License-Identifier: MIT
// dist/shm/meeting.cpp - gates, bells and who has come.
#include "dist/shm/meeting.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <vector>

#include "dist/work.h"

namespace brigade::dist {
namespace {

// After this a sleeper looks whether its peers live.
constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 100'000'000};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

}  // namespace

Meeting::Meeting(std::shared_ptr<HostMemory> memory, int rank) : memory_(std::move(memory)), rank_(rank) {
  meet_processes();
}

void Meeting::meet_processes() {
  RankBlock& self = mine();
  self.process = getpid();
  if (sched_getaffinity(getpid(), sizeof self.cores, &self.cores) != 0) CPU_ZERO(&self.cores);
  gate();
  cpu_set_t all;
  CPU_ZERO(&all);
  bool seen = true, free = true;
  for (int r = 0; r < size(); ++r) {
    const RankBlock& other = memory_->block(r);
    CPU_OR(&all, &all, &other.cores);
    free = free && CPU_EQUAL(&other.cores, &self.cores);
    // Ranks in containers may have numbers that mean nothing here.
    seen = seen && (kill(static_cast<pid_t>(other.process), 0) == 0 || errno == EPERM);
  }
  has_cores_ = CPU_COUNT(&all) >= size();
  sees_processes_ = seen;
  if (free) take_core();
  gate();  // So that nobody leaves before all have looked.
}

// Whoever is woken tends to be placed on the core of the one who woke it, and there the ranks reduce their slices one
// after another: 16 MiB took two ranks on two cores 1.2 ms instead of 0.6. So the threads that meet are spread over the
// cores, where the launcher has not done it.
void Meeting::take_core() const {
  const int count = CPU_COUNT(&mine().cores);
  if (count == 0) return;
  int skip = size() <= count ? rank_ * count / size() : rank_ % count;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &mine().cores) || skip-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    sched_setaffinity(0, sizeof own, &own);  // The calling thread. A refusal costs speed only.
    return;
  }
}

void Meeting::gate() {
  check_alive();
  const std::uint64_t turn = ++turn_;
  mine().came.store(turn);
  const auto all_came = [&] {
    for (int r = 0; r < size(); ++r)
      if (memory_->block(r).came.load() < turn) return false;
    return true;
  };
  if (!all_came()) {
    wait(all_came);
    return;
  }
  // The last one wakes the others. (With several at the same moment, each takes itself for the last.)
  for (int r = 0; r < size(); ++r)
    if (r != rank_) wake(r);
}

void Meeting::wake(int rank) const noexcept {
  RankBlock& other = memory_->block(rank);
  if (other.asleep.load() == 0) return;
  other.bell.fetch_add(1);
  syscall(SYS_futex, &other.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Meeting::sleep(std::uint32_t heard) const {
  const long woken = syscall(SYS_futex, &mine().bell, FUTEX_WAIT, heard, &kNap, nullptr, 0);
  if (woken != 0 && errno == ETIMEDOUT) check_processes();
}

// Launchers end a job that has lost a process, but not all of them, and not at once.
void Meeting::check_processes() const {
  if (!sees_processes_) return;
  for (int r = 0; r < size(); ++r) {
    const auto process = static_cast<pid_t>(memory_->block(r).process);
    if (kill(process, 0) != 0 && errno == ESRCH)
      throw CommError(str("the process of rank ", r, " (", process, ") is gone"));
  }
}

void Meeting::check_alive() const {
  const AbortNote& note = memory_->abort_note();
  if (note.state.load(std::memory_order_acquire) == 0) return;
  for (int i = 0; i < 1'000'000 && note.state.load(std::memory_order_acquire) != 2; ++i) pause();
  throw CommError(std::string(note.reason, strnlen(note.reason, sizeof note.reason)));
}

void Meeting::abort(const std::string& reason) noexcept {
  AbortNote& note = memory_->abort_note();
  std::uint32_t none = 0;
  if (note.state.compare_exchange_strong(none, 1)) {
    reason.copy(note.reason, sizeof note.reason - 1);
    note.state.store(2);
  }
  for (int r = 0; r < size(); ++r) wake(r);
}

std::string Meeting::arrivals() const {
  std::vector<bool> arrived;
  std::vector<Progress> progress;
  const std::uint64_t turn = turn_;
  for (int r = 0; r < size(); ++r) {
    arrived.push_back(memory_->block(r).came.load() >= turn);
    progress.push_back(memory_->block(r).progress.read());
  }
  return describe_arrivals(arrived, progress);
}

}  // namespace brigade::dist
