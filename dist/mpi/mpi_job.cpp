// SPDX-License-Identifier: MIT
// dist/mpi/mpi_job.cpp - starting and ending MPI.
#include "dist/mpi/mpi_job.h"

#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>

#include <cstdlib>

#include "dist/mpi/mpi_calls.h"
#include "dist/mpi/mpi_hosts.h"
#include "dist/mpi/mpi_transport.h"
#include "dist/shm/shm_transport.h"
#include "dist/shm/two_level_transport.h"

namespace brigade::dist {
namespace {

void start_mpi() {
  int initialized = 0;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  if (initialized != 0)
    fail("mpi: MPI was started before in this process, which MPI allows once; share one Job");

  // Defaults that cost nothing where they do not matter; what the user has set wins. (What concerns the
  // launch itself - root, oversubscription, binding - is read by mpirun and can only be set for mpirun.)
  // Waiting ranks spin: with fewer cores than ranks they would starve the one they wait for.
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // Up to this size a message leaves at once; a longer one asks the receiver first and waits for the answer, which over
  // TCP costs messages of 1 to 4 MB up to half the rate. Larger than the pieces in which transports send.
  setenv("OMPI_MCA_btl_tcp_eager_limit", "1048576", 0);
  // Reading a peer's memory needs a permission containers lack; without this every message prints an error.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);

  // Open MPI's own segments have names: in /dev/shm a killed rank would leave them for ever, in the job's directory
  // mpirun removes them. Measured as fast there, and between ranks that share our memory they carry next to nothing.
  if (const char* const folder = std::getenv("OMPI_MCA_orte_jobfam_session_dir"); folder != nullptr)
    setenv("OMPI_MCA_btl_vader_backing_directory", folder, 0);

  // Of this thread, in ns: sleeps of 20 us (wait_asleep) would else take 70.
  prctl(PR_SET_TIMERSLACK, 1000);

  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED)
    throw CommError("MPI_Init_thread: this MPI cannot be used beside other threads");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

}  // namespace

MpiJob::MpiJob(std::chrono::milliseconds timeout)
    : timeout_(timeout),
      board_(ArrivalBoard::attach(self_)),  // Before MPI_Init, which hangs until all ranks call it.
      stream_(make_worker_stream("comm")) {
  // Who watches over the launcher says why it ends; else the kernel ends this process.
  if (!board_ || !board_->watched()) stream_->submit([] { prctl(PR_SET_PDEATHSIG, SIGKILL); });
  stream_->submit(start_mpi);
  await_call("MPI_Init", ArrivalBoard::kProcessStarted);
}

MpiJob::~MpiJob() {
  if (!finished_) leave_behind();
}

// Joining the thread could block for ever: it is left to the end of the process.
void MpiJob::leave_behind() { static_cast<void>(new std::shared_ptr<Stream>(std::move(stream_))); }

// Waits for what was submitted last, and meanwhile for ranks that ask for the board.
void MpiJob::await_call(const char* call, ArrivalBoard::Place place) {
  const Event done = stream_->record();
  const auto deadline = Clock::now() + timeout_;
  while (!done.wait_until(Clock::now() + std::chrono::milliseconds(2))) {
    if (board_) board_->serve();
    if (Clock::now() < deadline) continue;
    *broken_ = true;
    const std::string who = str("[rank ", self_.rank, "/", self_.size, "] ");
    std::string arrivals = board_ ? board_->arrivals(place) : "which ranks came to it is not known";
    // The board knows that a rank started, not that it ended since.
    if (board_ && place == ArrivalBoard::kProcessStarted && board_->all_came_to(place))
      arrivals += "; one of them may have ended since: before MPI is up nobody is told";
    leave_behind();
    throw CommError(str(who, call, ": not done within ", timeout_.count(), " ms; ", arrivals));
  }
  if (board_) board_->stop_serving();
  stream_->synchronize();  // Rethrows what the call threw.
}

std::unique_ptr<Transport> MpiJob::connect(std::int64_t max_chunk_bytes) {
  return make_mpi_transport({.broken = broken_,
                             .board = board_,
                             .group = ++groups_,
                             .max_chunk_bytes = max_chunk_bytes,
                             .one_host = hosts().count() == 1});
}

std::unique_ptr<Transport> MpiJob::connect(InHost in_host) {
  connecting_ = ArrivalBoard::place(groups_ + 1, 0);
  if (board_) board_->come_to(connecting_);
  const std::shared_ptr<HostMemory> memory =
      in_host == InHost::shared_memory && hosts().any_shared() ? hosts().share_memory() : nullptr;
  if (!memory) return connect(kMaxChunkBytes);
  auto here = make_shm_transport(memory, hosts().rank_here(),
                                 {.name = "mpi + shared memory",
                                  .on_abort = [broken = broken_] { *broken = true; },
                                  .on_report =
                                      [board = board_](const Progress& progress) {
                                        if (board) board->report(progress);
                                      }});
  if (hosts().count() == 1) return here;
  TwoLevels levels{.here = std::move(here), .all = connect(kMaxChunkBytes)};
  if (hosts().across() != MPI_COMM_NULL)
    levels.across =
        make_mpi_transport({.broken = broken_, .max_chunk_bytes = kMaxChunkBytes, .ranks = hosts().across()});
  return make_two_level_transport(std::move(levels));
}

std::string MpiJob::arrivals() const {
  return board_ ? board_->arrivals(connecting_) : "which ranks came is not known";
}

const MpiHosts& MpiJob::hosts() {
  if (!hosts_) hosts_ = std::make_unique<MpiHosts>();
  return *hosts_;
}

void MpiJob::finish() {
  // MPI_Finalize waits for all processes, and some of them may be stuck.
  if (*broken_) throw CommError("mpi: a group was aborted; the job cannot end in order");
  if (board_) board_->come_to(ArrivalBoard::kEnd);
  stream_->submit([] { check_mpi(MPI_Finalize(), "MPI_Finalize"); });
  await_call("MPI_Finalize", ArrivalBoard::kEnd);
  finished_ = true;
}

}  // namespace brigade::dist
