// SPDX-License-Identifier: MIT
// dist/shm/shm_transport.h - the transport between ranks of one host that are processes of their own: collectives on
// memory they share. Read before: dist/shm/host_memory.h. Read next: dist/shm/meeting.h, how they wait.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dist/shm/host_memory.h"
#include "dist/transport.h"

namespace brigade::dist {

struct ShmOptions {
  std::string name = "shared memory";
  std::function<void()> on_abort = {};  ///< Called by abort(). Must not throw.
  /// Called by report(): who else wants to know. Must not throw.
  std::function<void(const Progress&)> on_report = {};
};

/// Rank `rank` of those that share `memory`. Collective.
///
/// Tensors that lie in memory of allocate_shared() on all ranks are read, and reduced into, where they lie: each rank
/// reduces its slice of all tensors, in rank order, and writes the result to all of them. What lies elsewhere passes
/// through staging memory of a fixed size, piece by piece. Ranks wait asleep, after some microseconds of looking if
/// every rank has a core.
std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<HostMemory> memory, int rank,
                                              ShmOptions options = {});

}  // namespace brigade::dist
