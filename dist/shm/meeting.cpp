// SPDX-License-Identifier: MIT
// dist/shm/meeting.cpp - gates, bells and who has come.
#include "dist/shm/meeting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <vector>

#include "dist/shm/process_end.h"
#include "dist/work.h"

namespace brigade::dist {
namespace {

// After this a sleeper looks whether its peers live.
constexpr std::chrono::nanoseconds kNap = std::chrono::milliseconds(100);

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

// The calling thread. A refusal costs speed only.
void stay_on(int core) {
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(static_cast<std::size_t>(core), &own);
  sched_setaffinity(0, sizeof own, &own);
}

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
    // Ranks that are threads of this process need no watch.
    const auto process = static_cast<pid_t>(other.process);
    processes_.push_back(process == getpid() ? Descriptor() : open_process(process));
    // Ranks in containers may have numbers that mean nothing here.
    seen = seen && (processes_.back() || !has_ended(processes_.back(), process));
  }
  has_cores_ = CPU_COUNT(&all) >= size();
  sees_processes_ = seen;
  if (free) own_core_ = choose_core();
  spreads_ = has_cores_ && own_core_ >= 0;
  if (own_core_ >= 0) stay_on(own_core_);
  gate();  // So that nobody leaves before all have looked.
}

// Whoever is woken tends to be placed on the core of the one who woke it, and there the ranks reduce their slices one
// after another: 16 MiB took two ranks on two cores 1.2 ms instead of 0.6. So the threads that meet are spread over the
// cores, where the launcher has not done it.
int Meeting::choose_core() const {
  const int count = CPU_COUNT(&mine().cores);
  if (count == 0) return -1;
  int skip = size() <= count ? rank_ * count / size() : rank_ % count;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &mine().cores) && skip-- == 0) return core;
  return -1;
}

// A thread that runs a call in its wait is not ours to be tied to a core. But two of them that take turns on one core
// would stay there: each is idle half of the time, and the system sees no reason to part them. Who is not at home
// moves.
void Meeting::part() const {
  const int core = sched_getcpu();
  bool shared = false;
  for (int r = 0; r < size(); ++r) shared = shared || (r != rank_ && memory_->block(r).core.load() == core);
  cpu_set_t allowed;
  if (!shared || core == own_core_ || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  stay_on(own_core_);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

void Meeting::gate() {
  check_alive();
  const std::uint64_t turn = ++turn_;
  if (spreads_) mine().core.store(sched_getcpu());
  mine().came.store(turn);
  const auto all_came = [&] {
    for (int r = 0; r < size(); ++r)
      if (memory_->block(r).came.load() < turn) return false;
    return true;
  };
  if (!all_came()) {
    if (wait(all_came) && spreads_) part();
    return;
  }
  // The last one wakes the others. (With several at the same moment, each takes itself for the last.)
  bool slept = false;
  for (int r = 0; r < size(); ++r) slept = (r != rank_ && wake(r)) || slept;
  if (slept && spreads_) part();
}

bool Meeting::wake(int rank) const noexcept {
  RankBlock& other = memory_->block(rank);
  if (other.asleep.load() == 0) return false;
  other.bell.fetch_add(1);
  syscall(SYS_futex, &other.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return true;
}

int Meeting::sleep(std::uint32_t heard) const {
  const std::chrono::nanoseconds left = WaitLimit::deadline() - Clock::now();
  if (left.count() <= 0) throw TimedOut();
  const timespec nap{.tv_sec = 0, .tv_nsec = std::min(left, kNap).count()};
  const long woken = syscall(SYS_futex, &mine().bell, FUTEX_WAIT, heard, &nap, nullptr, 0);
  return woken != 0 && errno == ETIMEDOUT ? ended_rank() : -1;
}

// Launchers end a job that has lost a process, but not all of them, and not at once.
int Meeting::ended_rank() const {
  for (int r = 0; sees_processes_ && r < size(); ++r)
    if (has_ended(processes_[static_cast<std::size_t>(r)], static_cast<pid_t>(memory_->block(r).process)))
      return r;
  return -1;
}

void Meeting::lost(int rank) const {
  const RankBlock& other = memory_->block(rank);
  throw CommError(describe_lost(rank, static_cast<pid_t>(other.process), other.progress.read()));
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
