// SPDX-License-Identifier: MIT
// dist/mpi/mpi_transport.h - the transport over an MPI communicator. Read before: dist/mpi/mpi_job.h.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>

#include "dist/mpi/arrival_board.h"
#include "dist/transport.h"

namespace brigade::dist {

struct MpiTransportOptions {
  std::shared_ptr<std::atomic<bool>>
      broken;  ///< Set by abort(), which can do no more: MPI cannot be interrupted.
  std::shared_ptr<ArrivalBoard> board = {};  ///< Where arrivals are noted; nullptr: nowhere.
  std::uint64_t group = 1;                   ///< Counts the job's transports, from 1.
  std::int64_t max_chunk_bytes = 0;          ///< MPI counts in int: no call moves more.
  MPI_Comm ranks = MPI_COMM_WORLD;           ///< The group's ranks.
  bool one_host = false;                     ///< Whether they are all on one host.
};

/// A group on a communicator of its own. Collective; call on the thread that started MPI.
///
/// Ranks that all live on one host wait for each other asleep (meet(), barrier(), all_gather_control()), and then call
/// MPI's blocking collectives, which are the fastest there but spin. Between hosts a transfer is itself a wait: there
/// every call is a non-blocking one with a sleeping wait, and all_reduce runs the in-house algorithms on send_recv().
std::unique_ptr<Transport> make_mpi_transport(MpiTransportOptions options);

}  // namespace brigade::dist
