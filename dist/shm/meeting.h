// SPDX-License-Identifier: MIT
// dist/shm/meeting.h - how the ranks of one host wait for each other: gates in shared memory, passed in a fraction of a
// microsecond where every rank has a core, and slept at (futex) where not. Read before: dist/shm/host_memory.h.
// Read next: dist/shm/shm_transport.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "dist/shm/host_memory.h"

namespace brigade::dist {

/// One rank's place at the meeting of all ranks of a HostMemory. One thread calls; abort(), report() and arrivals() may
/// come from any.
class Meeting {
 public:
  Meeting(std::shared_ptr<HostMemory> memory, int rank);

  int rank() const { return rank_; }
  int size() const { return memory_->ranks(); }
  HostMemory& memory() const { return *memory_; }
  RankBlock& mine() const { return memory_->block(rank_); }
  /// Whether all ranks can run at the same time; the same on all of them.
  bool has_cores() const { return has_cores_; }

  /// Waits until all ranks have come to their gate of this number: what each wrote before is seen by all behind it.
  /// CommError if the meeting was ended, or if the process of another rank is gone.
  void gate();

  /// Waits until `done()`, which becomes true by what a peer does before it calls wake() for this rank.
  template <class Done>
  void wait(const Done& done);
  void wake(int rank) const noexcept;

  /// Throws CommError with the reason if the meeting was ended.
  void check_alive() const;
  void abort(const std::string& reason) noexcept;
  void report(const Progress& progress) noexcept { mine().progress.write(progress); }
  /// "arrived: ranks 0, 2; missing: rank 1 (backward of step 7, …)", about the gate that this rank came to last.
  std::string arrivals() const;

 private:
  void sleep(std::uint32_t heard) const;
  void meet_processes();
  void take_core() const;
  void check_processes() const;

  const std::shared_ptr<HostMemory> memory_;
  const int rank_;
  std::atomic<std::uint64_t> turn_ = 0;  // Gates come to. Read by arrivals().
  bool has_cores_ = false;
  bool sees_processes_ = false;  // Whether a process that is gone can be told from one that is not.
};

/// How often a rank looks at memory before its wait becomes a sleep, some 10 us: by so much ranks differ that reduce
/// their slices at the same time. A sleep costs both sides a system call.
inline constexpr int kLooks = 300;

/// A moment's rest for the other thread of the core, in a loop that looks at memory.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Done>
void Meeting::wait(const Done& done) {
  // Looking again pays if the one that is waited for can run meanwhile.
  for (int i = 0; i < kLooks && has_cores_; ++i) {
    if (done()) return;
    pause();
  }
  // First "asleep", then a last look, and whoever changes something looks in the other order: one of the two sees it.
  RankBlock& self = mine();
  while (true) {
    const std::uint32_t heard = self.bell.load();
    self.asleep.store(1);
    if (done()) break;
    check_alive();
    sleep(heard);
  }
  self.asleep.store(0);
}

}  // namespace brigade::dist
