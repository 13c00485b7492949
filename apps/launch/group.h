// SPDX-License-Identifier: MIT
// apps/launch/group.h - ranks as one thing: a signal reaches all of them, and they end together, with one exit code.
//
// Why this process stays as a parent: Open MPI's mpirun answers SIGINT and SIGTERM by ending its ranks within a second
// and returns 1, whatever they returned; MPICH's passes them on and may return 0. Here ranks get the signal itself and
// the time to save, and "75: saved" stays 75.
#pragma once

#include <chrono>

#include "apps/launch/command.h"

namespace brigade::launch {

struct GroupRules {
  bool several_hosts = false;
  std::chrono::milliseconds grace{30'000};  ///< For ranks to end by themselves after a signal.
};

struct Outcome {
  int code =
      0;  ///< The command's, or 128 + the signal that ended it or that this process was asked to end by.
  bool was_asked = false;  ///< To end, by a signal to this process.
};

/// Runs the command until it and all its processes have ended. Throws Error if it cannot be started.
Outcome run_group(const Command& command, const GroupRules& rules);

/// Whether running it once more may help: not if somebody wanted it to end, nor after a usage error.
bool may_restart(const Outcome& outcome);

}  // namespace brigade::launch
