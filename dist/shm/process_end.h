// SPDX-License-Identifier: MIT
// dist/shm/process_end.h - whether another process of this host has ended. Users: dist/shm/meeting.cpp,
// dist/mpi/peer_watch.cpp.
#pragma once

#include <sys/types.h>

#include "dist/shm/handover.h"

namespace brigade::dist {

/// A descriptor (pidfd) that becomes readable when `process` ends, also before its parent has asked for its exit code.
/// None if there is no such process: errno is ESRCH then; or if the system has no such descriptors (Linux before 5.3).
Descriptor open_process(pid_t process);

/// Whether `process` has ended. Where `opened`, from open_process(), is none, one that its parent has not asked for yet
/// counts as running.
bool has_ended(const Descriptor& opened, pid_t process);

}  // namespace brigade::dist
