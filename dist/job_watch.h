// SPDX-License-Identifier: MIT
// dist/job_watch.h - who lives: a rank that is killed says nothing, and those that wait for it would wait until the
// time-out, or be killed by the launcher before they could say why. Read next: dist/mpi/peer_watch.cpp.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace brigade::dist {

/// Watches, on a thread of its own, over the processes without which this one has nothing left to do: the other ranks
/// of its job on this host, and its launcher. Those on other hosts are the launcher's to watch.
class JobWatch {
 public:
  virtual ~JobWatch() = default;  ///< Stops watching. Not from inside `lost`.
  /// To be called before this process ends, with the error that ends it, or nothing if all is well: else the others
  /// take it for lost.
  virtual void leave(const std::string& error) noexcept = 0;
  /// What `rank` has left, its first 999 bytes; nothing if it has not, or is on another host.
  virtual std::optional<std::string> words_of(int rank) const = 0;
};

/// `lost(text)` is called on the watch's thread, at most once, soon after a process has gone without a word ("rank 1
/// (process 123) is gone; it was last in backward of step 7, …") or with an error. It should end this process: the
/// thread that runs the rank may be inside a call of MPI, which nothing can interrupt. nullptr for a process that is no
/// rank of a job of several, and where the launcher does not name its job (MPICH's).
std::unique_ptr<JobWatch> watch_job(std::function<void(const std::string&)> lost);

/// Where the numbers of processes mean what they mean here: containers have numbers of their own.
std::uint64_t process_numbering();
/// "123@4026531836": this process, for others on this host. apps/launch leaves it in $BRIGADE_LAUNCHER.
std::string name_of_this_process();
/// The number of a process so named; 0 if it means nothing here.
pid_t process_of(const std::string& name);
/// Whether a signal (SIGSTOP, a debugger's) holds the process up; false for one that is not there.
bool is_stopped(pid_t process);

}  // namespace brigade::dist
