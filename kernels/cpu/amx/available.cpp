// SPDX-License-Identifier: MIT
// kernels/cpu/amx/available.cpp - asking for AMX. The one file of this folder that every processor runs: it is compiled
// for all of them.
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/amx/amx.h"

namespace brigade::cpu::amx {
namespace {

// Processor: CPUID leaf 7. System: tile data is off for a process until it asks (Linux 5.16).
bool ask() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  constexpr long kTileData = 18;
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, kTileData) != 0) return false;
  return static_cast<bool>(__builtin_cpu_supports("avx512bw")) &&
         static_cast<bool>(__builtin_cpu_supports("avx512vl")) &&
         static_cast<bool>(__builtin_cpu_supports("avx512bf16"));
}

}  // namespace

bool available() {
  static const bool answer = ask();
  return answer;
}

}  // namespace brigade::cpu::amx
