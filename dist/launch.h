// SPDX-License-Identifier: MIT
// dist/launch.h - turns a program into ranks: n threads of this process, or this process as
// one rank of a job that MPI or torchrun's environment describes. Read before: dist/process_group.h. The backends that
// were compiled in are listed in dist/backends.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/emulated/network_model.h"
#include "dist/process_group.h"

namespace brigade::dist {

/// Where this process stands, read from the launcher's environment before anything starts.
struct LaunchEnvironment {
  bool mpi = false;       ///< Started by mpirun / mpiexec / srun with a known PMI…
  bool torchrun = false;  ///< … or else by torchrun, or a shell that sets the same (dist/tcp/torchrun_job.h).
  int rank = 0, size = 1;
  int local_size = 1;  ///< Ranks on this host.
};
/// Never throws: variables that make no sense are none. run_ranks() says what is wrong with torchrun's.
LaunchEnvironment launch_environment();
/// Of `ranks` in this program's job, those on this host: threads of one process all are.
int ranks_on_this_host(int ranks);

/// The MPI behind the mpi backend, in its own words.
struct MpiLibrary {
  std::string compiled;  ///< By its headers: "Open MPI 4.1.4", "MPICH 4.0.2".
  std::string loaded;    ///< What the library that is loaded says of itself, which may be many lines.
};
/// Nothing if the backend is not compiled in. Does not start MPI.
std::optional<MpiLibrary> mpi_library();

/// How ranks on one host exchange bytes in a job of several processes.
enum class InHost : std::uint8_t { shared_memory, mpi };

/// This process's place in a job of several processes. MPI can be started only once in a process: whoever runs several
/// groups one after another keeps one Job for all of them.
class Job {
 public:
  virtual ~Job() = default;  ///< Never communicates; see finish().
  /// Who has come to the last connect(), where that is known. From any thread.
  virtual std::string arrivals() const = 0;
  /// The one thread that talks to the job.
  virtual std::shared_ptr<Stream> stream() const = 0;
  /// A group of all processes. Collective; runs on stream(). Where ranks cannot share memory, MPI carries everything.
  virtual std::unique_ptr<Transport> connect(InHost in_host = InHost::shared_memory) = 0;
  /// Ordered end on all processes. Blocks. Throws CommError if a group was aborted before, or when it takes longer than
  /// the job's time-out.
  virtual void finish() = 0;
};

/// Starts MPI. Blocks until all processes of the job have; CommError after `timeout`, naming those of this host that
/// have not. Throws Error if the mpi backend is not compiled in.
std::shared_ptr<Job> join_mpi_job(std::chrono::milliseconds timeout = GroupOptions{}.timeout);
/// The job of torchrun's environment. Throws Error for an environment that makes no sense, or without one; CommError if
/// rank 0 cannot listen where it should.
std::shared_ptr<Job> join_torchrun_job(std::chrono::milliseconds timeout = GroupOptions{}.timeout);

struct LaunchOptions {
  /// auto: mpi under mpirun, tcp in torchrun's environment, else threads. mpi, tcp: shared memory between ranks on one
  /// host, MPI or sockets between hosts. plain_mpi: MPI for everything.
  std::string backend = "auto";
  int ranks = 1;                   ///< threads backend; of a job of processes 1 or their number.
  std::string algorithm = "auto";  ///< Of all_reduce: auto (the backend's own), naive, tree, ring, …
  GroupOptions group = {};
  /// auto, cpu or cuda: whether tensors may lie on a GPU beside the CPU; see dist/device_choice.h.
  std::string device = "cpu";
  std::optional<NetworkModel> network = {};  ///< Collectives take at least as long as on this network.
  /// mpi, tcp: a job joined already. Without one, run_ranks joins and finishes one.
  std::shared_ptr<Job> job = {};
  /// threads: makes a rank's transport, on its communication stream. Empty: the backend's own.
  std::function<std::unique_ptr<Transport>(int rank)> connect = {};
  /// threads: called with the error when a rank has failed and another one has not ended some seconds later. A
  /// thread cannot be ended from outside: a program should say what is wrong and end itself here. Empty: wait for ever.
  std::function<void(const std::string&)> on_stuck = {};
};

/// Names for `backend` and for `algorithm`, for --help and error messages.
std::vector<std::string_view> backend_names();
std::vector<std::string_view> algorithm_names();

/// Runs `body(group)` on every rank that lives in this process and waits for all of them. Each rank's thread
/// has set_num_threads(cores / local ranks) (at least 1), or $OMP_NUM_THREADS in a job of several processes.
/// When a body throws, the group is aborted so that its peers end too, and the error that started it is rethrown (Error
/// and CommError with "[rank r/n] " in front when there are several ranks). A body that never returns keeps run_ranks
/// from returning: see LaunchOptions::on_stuck. Returns normally only if every body did; the group is closed in order
/// then.
/// Throws Error for an unknown backend, a backend that is not compiled in, or ranks < 1.
void run_ranks(const LaunchOptions& options, const std::function<void(ProcessGroup&)>& body);

}  // namespace brigade::dist
