// SPDX-License-Identifier: MIT
// apps/common/machine_text.h - where a program runs, in words for its first lines.
#pragma once

#include <string>

namespace brigade::apps {

/// "Open MPI's mpirun", "threads of one process", …: who started the ranks.
std::string launcher_text();
/// "AVX-512 (bf16, vnni), AMX": what the processor offers, not what a build uses.
std::string processor_text();

}  // namespace brigade::apps
