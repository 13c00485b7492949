// SPDX-License-Identifier: MIT
// core/fault_point.h - places in the program where tests can make something fail: an exception, a delay, the death of
// the process, a wrong value, a full disk. Compiled in where the tests are (CMake: BRIGADE_FAULT_POINTS); what is not
// armed costs one branch on a static. Programs arm them from $BRIGADE_FAULT (apps/common/run_main.cpp).
// Read before: core/fault_spec.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/fault_spec.h"

namespace brigade {

class Tensor;

#ifdef BRIGADE_NO_FAULT_POINTS
inline constexpr bool kFaultPoints = false;
#else
inline constexpr bool kFaultPoints = true;
#endif

namespace fault_detail {
// Process-wide because what it simulates is: disks fill up, and processes die, for everybody in them.
inline constinit std::atomic<bool> any_armed{false};
void visit(FaultAt at, std::string_view label);
void visit(FaultAt at, const Tensor& values, std::string_view label);
}  // namespace fault_detail

/// Whether some fault was asked for: what is needed for a visit only, like a label, is made behind this.
inline bool faults_armed() {
  if constexpr (kFaultPoints)
    return fault_detail::any_armed.load(std::memory_order_relaxed);
  else
    return false;
}

/// Throws Error, sleeps, or ends or stops this process, if that was asked for here.
inline void fault_point(FaultAt at, std::string_view label = {}) {
  if (faults_armed()) [[unlikely]]
    fault_detail::visit(at, label);
}

/// The same for a point with values (floating point, contiguous; otherwise nan and flip do nothing), one of which may
/// become NaN or lose a bit.
inline void fault_point(FaultAt at, const Tensor& values, std::string_view label = {}) {
  if (faults_armed()) [[unlikely]]
    fault_detail::visit(at, values, label);
}

/// What a system call shall pretend.
struct IoFault {
  int error = 0;          ///< An errno, like ENOSPC: the call must not be made, and has failed. 0: make it…
  std::size_t bytes = 0;  ///< …with so many bytes; fewer than wanted are a short write.
};
/// For a point of kind io, before the call. `bytes` may be altered if that was asked for (flip).
///
///   const IoFault fault = io_fault(FaultAt::checkpoint_write, path, bytes);
///   const ssize_t n = fault.error != 0 ? (errno = fault.error, -1) : ::write(file, bytes.data(), fault.bytes);
IoFault io_fault(FaultAt at, std::string_view label, std::span<std::byte> bytes = {});

/// Who visits from now on: ranks that are threads tell it each for itself, a rank that is a process for all its
/// threads. -1: not known, which fits no clause with a rank.
enum class FaultThreads : std::uint8_t { this_one, all };
void set_fault_rank(int rank, FaultThreads threads);
/// The step that begins on this thread, from 1.
void set_fault_step(std::int64_t step);

/// Asks for faults from now on, in place of earlier ones. `tell` gets a line for each that happens, before it does.
/// Returns the seed: the specification's, or a fresh one. Throws Error for a specification that is wrong, and for any
/// in a build without fault points.
std::uint64_t arm_faults(std::string_view specification, std::function<void(const std::string&)> tell = {});
void disarm_faults();

}  // namespace brigade
