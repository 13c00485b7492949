// SPDX-License-Identifier: MIT
// dist/mpi/mpi_transport.h - the transport over an MPI communicator. Read before: dist/mpi/mpi_job.h.
#pragma once

#include <atomic>
#include <memory>

#include "dist/transport.h"

namespace brigade::dist {

/// A group of all processes on a communicator of its own. Collective; call on the thread that started MPI.
/// abort() can only set `broken` and remember its reason: MPI cannot be interrupted.
std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<std::atomic<bool>> broken,
                                              std::int64_t max_chunk_bytes);

}  // namespace brigade::dist
