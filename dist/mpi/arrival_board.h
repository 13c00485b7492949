// SPDX-License-Identifier: MIT
// dist/mpi/arrival_board.h - how far the ranks on this host have come, in memory that all of them see: MPI cannot say
// who is late. Read before: dist/transport.h (Progress). Read next: dist/mpi/mpi_job.cpp.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "dist/launch.h"
#include "dist/shm/handover.h"

namespace brigade::dist {

/// A slot for each rank of the job; those of ranks on other hosts stay empty.
///
/// Nothing of it has a name in the file system, so nothing can be left behind or be stale: the first rank to come makes
/// the memory and listens on an abstract Unix socket named after user, job and host; the others get the memory's
/// descriptor from there. It must serve() until all have come, which they have once MPI_Init returns.
class ArrivalBoard {
 public:
  /// Places lie one behind the other on the way that all ranks take, whatever happens on it in between.
  using Place = std::uint64_t;
  static constexpr Place kNowhere = 0, kProcessStarted = 1, kEnd = ~Place{0};
  /// Call `call` (from 1) of group `group` (from 1).
  static Place place(std::uint64_t group, std::uint64_t call) { return (group << 32) + call; }

  /// The one board of this process: whoever attaches again gets the same. nullptr where the launcher does not name its
  /// job, or if the board cannot be had: it is no reason to fail. This rank is then at `here`.
  static std::shared_ptr<ArrivalBoard> attach(const LaunchEnvironment& self, Place here = kProcessStarted);
  /// For tests: the board called `name`.
  static std::shared_ptr<ArrivalBoard> attach(const LaunchEnvironment& self, const std::string& name,
                                              Place here = kProcessStarted);
  ~ArrivalBoard();
  ArrivalBoard(const ArrivalBoard&) = delete;
  ArrivalBoard& operator=(const ArrivalBoard&) = delete;

  /// Hands the memory to all that have asked for it since. Does not wait.
  void serve() noexcept;
  void stop_serving() noexcept;
  /// Serves in the place of a rank that has gone, so that ranks still to come learn of it.
  void take_over() noexcept;
  /// Becomes readable when somebody asks; -1 on ranks that do not serve.
  int door() const;

  // Thread-safe, and never waits.
  void come_to(Place place) noexcept;
  void report(const Progress& progress) noexcept;  ///< One thread at a time.
  /// Whether every rank is on this host and has come to `place`.
  bool all_came_to(Place place) const;
  /// "arrived: rank 0; missing: rank 1 (not started); not known: ranks 2, 3 (on other hosts)"; "arrived: ranks 0, 1;
  /// missing: none; rank 1 is stopped by a signal"
  std::string arrivals(Place place) const;

  // Who is there at all: see dist/mpi/peer_watch.h.

  /// The process of `rank`; 0 before it has started, and where its number means nothing to this process.
  pid_t process(int rank) const;
  Progress progress(int rank) const;
  /// Last words, to be left before a process ends: its error, or nothing if it ends in order. Only the first count.
  void leave(const std::string& error) noexcept;
  /// What `rank` left; nothing if it has not.
  std::optional<std::string> last_words(int rank) const;
  /// Whether somebody watches over this rank's launcher and peers.
  void set_watched(bool watched) noexcept;
  bool watched() const;

 private:
  struct Slot;
  ArrivalBoard(const LaunchEnvironment& self, const std::string& name, Descriptor memory,
               std::optional<Handover> handover);

  LaunchEnvironment self_;
  std::string name_;
  Descriptor memory_;
  mutable std::mutex mutex_;          // For what follows.
  std::optional<Handover> handover_;  // Of the rank that made the memory, until it stops serving.
  Slot* slots_ = nullptr;
};

}  // namespace brigade::dist
