// SPDX-License-Identifier: MIT
// apps/common/machine_text.cpp - see the header.
#include "apps/common/machine_text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>

#include "dist/launch.h"

namespace brigade::apps {

std::string launcher_text() {
  if (!dist::launch_environment().mpi) return "no launcher";
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return "launched by Open MPI's mpirun";
  if (std::getenv("SLURM_NTASKS") != nullptr) return "launched by srun";
  return "launched by an mpiexec that speaks PMI";
}

std::string processor_text() {
#if defined(__x86_64__)
  const auto supports = [](bool has, const char* name) { return has ? std::string(name) : std::string(); };
  std::string text = "SSE2";
  if (__builtin_cpu_supports("avx512f")) {
    text = "AVX-512";
    const std::string bf16 = supports(__builtin_cpu_supports("avx512bf16"), "bf16"),
                      vnni = supports(__builtin_cpu_supports("avx512vnni"), "vnni");
    if (!bf16.empty() || !vnni.empty())
      text += " (" + bf16 + (!bf16.empty() && !vnni.empty() ? ", " : "") + vnni + ")";
  } else if (__builtin_cpu_supports("avx2")) {
    text = "AVX2";
  }
  // g++ 12 has no name for it: leaf 7, bit 24 of edx is AMX-TILE.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxTile) != 0) text += ", AMX";
  return text;
#else
  return "an unknown processor";
#endif
}

}  // namespace brigade::apps
