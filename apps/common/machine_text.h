// SPDX-License-Identifier: MIT
// apps/common/machine_text.h - where a program runs, in words: for first lines, reports of benchmarks and doctor.
#pragma once

#include <string>
#include <string_view>

namespace brigade::dist {
class ProcessGroup;
}

namespace brigade::apps {

/// "Open MPI's mpirun", "threads of one process", …: who started the ranks.
std::string launcher_text();

/// "device cuda:0 (NVIDIA H200), tensors of ranks by nccl 2.28.9 beside mpi: 2 ranks have a GPU each": of a group
/// that has a device.
std::string device_text(const dist::ProcessGroup& group);

/// "Intel(R) Xeon(R) Processor"
std::string cpu_name();
/// Whether the processor, as the system shows it, has `flag` ("amx_tile"), in the spelling of /proc/cpuinfo.
bool cpu_has(std::string_view flag);
/// "AVX2, AVX-512, VNNI, AMX-BF16": what of the processor's offers decides speed here, not what a build uses.
std::string processor_text();
/// "Intel(R) Xeon(R) Processor, 2 cores, AVX-512, AMX-BF16 …"
std::string machine_line();

}  // namespace brigade::apps
