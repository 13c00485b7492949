// SPDX-License-Identifier: MIT
// dist/mpi/mpi_job.cpp - starting and ending MPI.
#include "dist/mpi/mpi_job.h"

#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>

#include <cstdlib>

#include "dist/mpi/mpi_calls.h"
#include "dist/mpi/mpi_transport.h"

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
  // Reading a peer's memory needs a permission containers lack; without this every message prints an error.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);

  prctl(PR_SET_PDEATHSIG, SIGKILL);

  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_FUNNELED)
    throw CommError("MPI_Init_thread: this MPI cannot be used beside other threads");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

}  // namespace

MpiJob::MpiJob() : stream_(make_worker_stream("comm")) {
  stream_->submit(start_mpi);
  stream_->synchronize();
}

MpiJob::~MpiJob() {
  // Joining the thread could block for ever: it is left to the end of the process.
  if (!finished_) static_cast<void>(new std::shared_ptr<Stream>(std::move(stream_)));
}

std::unique_ptr<Transport> MpiJob::connect(std::int64_t max_chunk_bytes) {
  return make_mpi_transport(broken_, max_chunk_bytes);
}

void MpiJob::finish() {
  // MPI_Finalize waits for all processes, and some of them may be stuck.
  if (*broken_) throw CommError("mpi: a group was aborted; the job cannot end in order");
  stream_->submit([] { check_mpi(MPI_Finalize(), "MPI_Finalize"); });
  stream_->synchronize();
  finished_ = true;
}

}  // namespace brigade::dist
