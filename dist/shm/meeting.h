// SPDX-License-Identifier: MIT
// dist/shm/meeting.h - how the ranks of one host wait for each other: gates in shared memory, passed in a fraction of a
// microsecond where every rank has a core, and slept at (futex) where not. Read before: dist/shm/host_memory.h.
// Read next: dist/shm/shm_transport.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "dist/shm/host_memory.h"
#include "dist/spin.h"
#include "dist/transport.h"

namespace brigade::dist {

/// One rank's place at the meeting of all ranks of a HostMemory. One thread calls at a time; abort(), report() and
/// arrivals() may come from any. The thread that makes it is tied to a core, where ranks have cores to themselves.
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

  /// Waits until `done()`, which becomes true by what a peer does before it calls wake() for this rank. Throws what
  /// gate() throws, and TimedOut at the thread's WaitLimit; so does gate().
  /// Returns whether it slept.
  template <class Done>
  bool wait(const Done& done);
  /// Returns whether it slept.
  bool wake(int rank) const noexcept;

  /// Throws CommError with the reason if the meeting was ended.
  void check_alive() const;
  void abort(const std::string& reason) noexcept;
  void report(const Progress& progress) noexcept { mine().progress.write(progress); }
  /// "arrived: ranks 0, 2; missing: rank 1 (backward of step 7, …)", about the gate that this rank came to last.
  std::string arrivals() const;

 private:
  // Until the bell rings, or a moment: then a rank whose process has ended, if there is one; else -1.
  int sleep(std::uint32_t heard) const;
  void meet_processes();
  int choose_core() const;
  void part() const;
  int ended_rank() const;
  [[noreturn]] void lost(int rank) const;

  const std::shared_ptr<HostMemory> memory_;
  const int rank_;
  std::atomic<std::uint64_t> turn_ = 0;  // Gates come to. Read by arrivals().
  bool has_cores_ = false;
  int own_core_ = -1;     // Where its threads would not be in another rank's way; -1: anywhere.
  bool spreads_ = false;  // Each rank could have a core to itself, and no launcher has given it one.
  std::vector<Descriptor> processes_;  // By rank: tells of its end.
  bool sees_processes_ = false;        // Whether a process that is gone can be told from one that is not.
};

template <class Done>
bool Meeting::wait(const Done& done) {
  // Looking again pays if the one that is waited for can run meanwhile.
  if (has_cores_ && comes_soon(done, WaitLimit::is_set() ? kPatientLooks : kLooks)) return false;
  // First "asleep", then a last look, and whoever changes something looks in the other order: one of the two sees it.
  RankBlock& self = mine();
  bool slept = false;
  while (true) {
    const std::uint32_t heard = self.bell.load();
    self.asleep.store(1);
    if (done()) break;
    check_alive();
    const int ended = sleep(heard);
    // One may have done its part and ended in order since.
    if (ended >= 0 && !done()) lost(ended);
    slept = true;
  }
  self.asleep.store(0);
  return slept;
}

}  // namespace brigade::dist
