// SPDX-License-Identifier: MIT
// dist/mpi/mpi_job.h - this process as one rank of an MPI job: start-up, the one thread that calls MPI, the
// end. Read before: dist/launch.h (Job). Read next: dist/mpi/mpi_transport.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "dist/launch.h"
#include "dist/mpi/arrival_board.h"

namespace brigade::dist {

class MpiHosts;

/// MPI in one process. All MPI calls, MPI_Init and MPI_Finalize included, happen on stream()
/// (MPI_THREAD_FUNNELED): OpenMPI 4.1 makes progress only inside calls, and its collectives are
/// not safe from several threads.
///
/// MPI cannot be interrupted. After an abort() a thread may stay inside a call until the process ends; then
/// the job counts as broken, finish() throws, and the destructor leaves the thread behind instead of joining
/// it. The process should end with _exit and a code other than 0: mpirun ends the other ranks then.
///
/// mpirun, killed itself, would leave ranks running: a rank that nobody watches over (dist/job_watch.h) asks the kernel
/// for SIGKILL when its launcher dies.
class MpiJob final : public Job {
 public:
  /// Sets defaults for OpenMPI's environment (only what is unset), starts MPI. Blocks; throws CommError that says which
  /// ranks have not started if that takes longer than `timeout`.
  explicit MpiJob(std::chrono::milliseconds timeout);
  ~MpiJob() override;

  std::shared_ptr<Stream> stream() const override { return stream_; }
  /// Shared memory if all ranks are on one host; two levels if some hosts have several ranks; MPI alone else.
  std::unique_ptr<Transport> connect(InHost in_host) override;
  /// MPI alone. Messages go in pieces of at most `max_chunk_bytes`. Tests set it small.
  std::unique_ptr<Transport> connect(std::int64_t max_chunk_bytes);
  void finish() override;
  std::string arrivals() const override;

 private:
  void await_call(const char* call, ArrivalBoard::Place place);
  void leave_behind();
  const MpiHosts& hosts();

  // Counts in MPI are int. Pieces of 1 GiB also keep the bytes of a piece below INT_MAX, because libraries
  // multiply count and element size in int (open-mpi/ompi#10095).
  static constexpr std::int64_t kMaxChunkBytes = std::int64_t{1} << 30;

  LaunchEnvironment self_ = launch_environment();
  std::chrono::milliseconds timeout_;
  std::shared_ptr<ArrivalBoard> board_;  // nullptr: none could be had.
  std::shared_ptr<Stream> stream_;
  // Shared with transports.
  std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<MpiHosts> hosts_;  // Set by the first connect().
  std::uint64_t groups_ = 0;
  std::atomic<ArrivalBoard::Place> connecting_ = ArrivalBoard::kProcessStarted;
  bool finished_ = false;
};

}  // namespace brigade::dist
