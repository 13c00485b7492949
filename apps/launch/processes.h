// SPDX-License-Identifier: MIT
// apps/launch/processes.h - who descends from a process, as /proc tells it.
#pragma once

#include <sys/types.h>

#include <vector>

namespace brigade::launch {

/// All living descendants of `ancestor`, parents before children; zombies are left out.
std::vector<pid_t> descendants(pid_t ancestor);

/// Those of them that a launcher started as ranks; not their own children.
std::vector<pid_t> ranks_below(pid_t launcher);

}  // namespace brigade::launch
