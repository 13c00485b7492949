// SPDX-License-Identifier: MIT
// apps/common/machine_text.cpp - read from /proc/cpuinfo and from what launchers leave in the environment.
#include "apps/common/machine_text.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"
#include "core/runtime.h"
#include "dist/launch.h"

namespace brigade::apps {
namespace {

// What follows the colon of the first line of /proc/cpuinfo that begins with `key`; empty if there is none.
std::string cpuinfo(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(std::min(line.size(), line.find(':') + 2));
  return {};
}

}  // namespace

std::string launcher_text() {
  const dist::LaunchEnvironment self = dist::launch_environment();
  if (self.torchrun) return "launched by torchrun, or as it does";
  if (!self.mpi) return "no launcher";
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return "launched by Open MPI's mpirun";
  if (std::getenv("SLURM_NTASKS") != nullptr) return "launched by srun";
  return "launched by an mpiexec that speaks PMI";
}

std::string device_text(const dist::ProcessGroup& group) {
  const std::string device = str("device ", group.device(), " (", device_name(group.device()), ")");
  if (group.size() == 1) return device;
  return str(device, ", tensors of ranks by ", group.backend(), ": ", group.device_choice());
}

std::string cpu_name() {
  std::string name = cpuinfo("model name");
  return name.empty() ? "unknown processor" : name;
}

bool cpu_has(std::string_view flag) {
  std::istringstream flags(cpuinfo("flags") + " " + cpuinfo("Features"));  // x86, Arm
  for (std::string have; flags >> have;)
    if (have == flag) return true;
  return false;
}

std::string processor_text() {
  constexpr std::pair<const char*, const char*> kNames[] = {{"avx2", "AVX2"},
                                                            {"avx512f", "AVX-512"},
                                                            {"avx512_bf16", "AVX512-BF16"},
                                                            {"avx512_vnni", "VNNI"},
                                                            {"amx_bf16", "AMX-BF16"},
                                                            {"amx_int8", "AMX-INT8"},
                                                            {"asimd", "Advanced SIMD"},
                                                            {"sve", "SVE"}};
  std::string out;
  for (const auto& [flag, name] : kNames)
    if (cpu_has(flag)) out += std::string(out.empty() ? "" : ", ") + name;
  if (out.empty()) out = cpu_has("sse2") ? "SSE2" : "unknown instructions";
  return out;
}

std::string machine_line() {
  const int cores = available_cores();
  return str(cpu_name(), ", ", cores, cores == 1 ? " core, " : " cores, ", processor_text());
}

}  // namespace brigade::apps
