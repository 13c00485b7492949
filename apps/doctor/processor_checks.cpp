// SPDX-License-Identifier: MIT
// apps/doctor/processor_checks.cpp - instruction sets, the library that uses them, the GPU, the clock.
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "apps/common/machine_text.h"
#include "apps/doctor/checks.h"
#include "core/check.h"
#include "core/runtime.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/onednn.h"

namespace brigade::doctor {
namespace {

// Whether the system lets this process use AMX's tile data now.
bool has_tile_permission() {
#ifdef SYS_arch_prctl
  constexpr int kGetPermission = 0x1022, kTileData = 18;  // ARCH_GET_XCOMP_PERM, Linux 5.16
  unsigned long permitted = 0;
  return syscall(SYS_arch_prctl, kGetPermission, &permitted) == 0 && (permitted >> kTileData & 1) != 0;
#else
  return false;
#endif
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Finding check_processor() {
  const std::string line = apps::cpu_name() + ", " + apps::processor_text();
  const bool wide = apps::cpu_has("avx2") || apps::cpu_has("asimd");
  if (wide) return ok("processor", line);
  return warning(
      "processor", line + ": neither AVX2 nor Advanced SIMD",
      "A virtual machine may hide them: give it the host's processor model, or expect a tenth of the "
      "speed.");
}

Finding check_amx() {
  if (!apps::cpu_has("amx_bf16") || !apps::cpu_has("amx_tile"))
    return ok("amx", "not in this processor; convolutions use vector instructions");
  if (cpu::amx::available()) return ok("amx", "tiles of bf16, and the system permits them");
  if (!has_tile_permission())
    return warning("amx", "the processor has tiles, but the system refuses them (arch_prctl)",
                   "Use Linux 5.16 or newer, and a container whose seccomp profile permits arch_prctl.");
  return warning("amx", "the processor has tiles, but this build does not use them",
                 "Build with g++ 11 or newer, which knows -mamx-bf16.");
}

Finding check_onednn() {
  const std::string version = "oneDNN " + onednn::version();
  // What it may use against what there is: whoever limits it, and in whatever way.
  std::string withheld;
  if (apps::cpu_has("avx512f") && !onednn::supports_bf16()) withheld = "AVX-512";
  if (withheld.empty() && apps::cpu_has("amx_bf16") && has_tile_permission() && !onednn::supports_amx())
    withheld = "AMX";
  if (withheld.empty()) return ok("onednn", version + ", not limited");
  for (const char* const variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    if (const char* const value = std::getenv(variable); value != nullptr)
      return warning("onednn",
                     str(version, " may not use this processor's ", withheld, ": ", variable, "=", value),
                     str("Unset ", variable, "."));
  }
  return warning("onednn", str(version, " does not use this processor's ", withheld),
                 "Install a newer libdnnl-dev and build again.");
}

Finding check_gpu() {
  const std::string status = device_status(DeviceType::cuda);
  if (device_count(DeviceType::cuda) > 0) return ok("gpu", status);
  const std::string driver = first_line("/proc/driver/nvidia/version");
  if (driver.empty() || status.starts_with("this build"))
    return ok("gpu", status + "; all runs on the processor");
  return warning("gpu", status + "; the driver here: " + driver,
                 "docs/gpu.md says what a GPU needs; until then all runs on the processor.");
}

Finding check_clock() {
  timespec resolution{}, begin{}, end{}, now{};
  clock_getres(CLOCK_MONOTONIC, &resolution);
  constexpr int kReads = 10'000;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < kReads; ++i) clock_gettime(CLOCK_MONOTONIC, &now);
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double nanoseconds =
      static_cast<double>(end.tv_sec - begin.tv_sec) * 1e9 + static_cast<double>(end.tv_nsec - begin.tv_nsec);
  const std::string source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const std::string line =
      fmt::format("source {}, resolution {} ns, {:.0f} ns a reading", source.empty() ? "unknown" : source,
                  resolution.tv_nsec + 1'000'000'000 * resolution.tv_sec, nanoseconds / kReads);
  // Read through the bus instead of in the processor: a microsecond each, in every time stamp of the ledger.
  const bool slow =
      source == "hpet" || source == "acpi_pm" || source == "jiffies" || source == "refined-jiffies";
  if (!slow && resolution.tv_sec == 0 && resolution.tv_nsec <= 1000) return ok("clock", line);
  return warning("clock", line + ": measured times are coarse and cost time",
                 "Boot with clocksource=tsc (or kvm-clock in a guest), if the system trusts that clock.");
}

}  // namespace brigade::doctor
