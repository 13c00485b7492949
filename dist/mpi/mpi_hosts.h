// SPDX-License-Identifier: MIT
// dist/mpi/mpi_hosts.h - which ranks of an MPI job share a host, and the memory they share there.
// Read before: dist/shm/host_memory.h. Read next: dist/mpi/mpi_job.cpp, which composes transports from it.
#pragma once

#include <mpi.h>

#include <memory>

#include "dist/shm/host_memory.h"

namespace brigade::dist {

/// How the ranks of MPI_COMM_WORLD lie on hosts. Ranks on one machine count as being on several hosts if their
/// environment gives BRIGADE_HOST different values: for tests, and for machines whose halves are far apart.
class MpiHosts {
 public:
  /// Collective, as is share_memory().
  MpiHosts();

  int count() const { return count_; }                      ///< Of hosts.
  bool any_shared() const { return count_ < world_size_; }  ///< Whether some host has several ranks.
  int rank_here() const { return rank_here_; }              ///< Among the ranks of this host.
  MPI_Comm across() const { return across_; }  ///< Rank 0 of every host; MPI_COMM_NULL on others.

  /// New memory of this host's ranks. nullptr, on all ranks of all hosts, where some host cannot share any.
  std::shared_ptr<HostMemory> share_memory() const;

 private:
  std::shared_ptr<HostMemory> share_here() const;

  int world_size_ = 1, count_ = 1, size_here_ = 1, rank_here_ = 0;
  MPI_Comm here_ = MPI_COMM_NULL, across_ = MPI_COMM_NULL;  // MPI_Finalize frees them.
};

}  // namespace brigade::dist
