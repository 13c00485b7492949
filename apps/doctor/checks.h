// SPDX-License-Identifier: MIT
// apps/doctor/checks.h - what is looked at. Each check reads the system and this process as they are, and answers with
// one finding; none throws for what it finds. Read before: finding.h. Read next: doctor_main.cpp.
#pragma once

#include <chrono>
#include <filesystem>

#include "apps/doctor/finding.h"
#include "dist/launch.h"

namespace brigade::doctor {

// processor_checks.cpp
Finding check_processor();
Finding check_amx();     ///< Asks the system for the permission to use tiles.
Finding check_onednn();  ///< Version, and whether it may use what the processor has.
Finding check_gpu();
Finding check_clock();

// core_checks.cpp
Finding check_cores();    ///< This process's affinity and its container's quota against the machine.
Finding check_load();     ///< Watches for 0.3 s whether others compute. Under a launcher the other ranks do.
Finding check_threads();  ///< OMP_NUM_THREADS and its kin against those cores.
Finding check_openmp();   ///< How many OpenMP runtimes are loaded.
/// Where this process may run, for check_binding(): its host, a space, and a list like "0-3,8".
std::string placement();
/// Of all ranks' placements, in rank order.
Finding check_binding(const std::vector<std::string>& placements);

// mpi_checks.cpp
/// The library against the launchers on the PATH, and against the one that started this process. `joinable` is false
/// where starting MPI would make every process rank 0 of 1.
Finding check_mpi(bool& joinable);
Finding check_single_copy();

// memory_checks.cpp
Finding check_shared_memory(const std::filesystem::path& folder = "/dev/shm");
/// Whether a run could write its files to `folder`, which need not exist yet.
Finding check_disk(const std::filesystem::path& folder);

// all_reduce_check.cpp
/// Two threads of this process sum what differs between them, and the sum is checked.
Finding check_threads_all_reduce(std::chrono::milliseconds timeout);
/// The same over a connected group; all ranks call it. Throws CommError.
Finding check_all_reduce(dist::ProcessGroup& group);

}  // namespace brigade::doctor
