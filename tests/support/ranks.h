// SPDX-License-Identifier: MIT
// tests/support/ranks.h - runs a test's body on every rank of worlds of several sizes. The same case runs on
// threads of one process, or, when the test program was started by mpiexec, on its MPI ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dist/launch.h"

namespace brigade::test {

struct WorldOptions {
  std::vector<int> sizes{1, 2, 3, 4};  ///< Of the thread worlds. Under mpiexec the launch decides.
  std::string algorithm = "auto";
  std::optional<dist::NetworkModel> network = {};
  dist::GroupOptions group{.timeout = std::chrono::seconds(20)};
};

/// Runs `body` on all ranks of each world, and fails the running Catch case, once, with the message of what a
/// body threw. Catch's own macros may not be used in `body` (they are not thread-safe): throw, by require()
/// or otherwise. A world that takes over a minute is ended with a message that names the ranks still running.
///
/// With BRIGADE_TEST_DEVICE=cuda every rank has a GPU beside the CPU, real or emulated, as its group's device (worlds
/// with a modelled network do not). BRIGADE_TEST_BACKEND chooses another transport for the same cases: shared_memory or
/// tcp without mpiexec (ranks are threads, and meet as processes would), plain_mpi with it.
///
/// Under mpiexec MPI starts at the first call and ends with the test run; only rank 0 prints, or who failed. A body may
/// not leave the group aborted there: MPI cannot go on after that, and all later cases fail. The same in torchrun's
/// environment (tests/support/as_torchrun.sh), but for MPI.
void for_each_world(const std::function<void(dist::ProcessGroup&)>& body, const WorldOptions& options = {});

/// What BRIGADE_TEST_DEVICE says: "cpu" or "cuda".
std::string device();

/// True in a test program that was started by mpiexec, or in torchrun's environment: its ranks are processes.
bool under_mpi();

/// The job this test program joined, or nullptr when it runs by itself.
std::shared_ptr<dist::Job> mpi_job();

/// Throws Error(message) unless `condition`.
void require(bool condition, const std::string& message);
/// Throws unless a and b have the same dtype, shape and bits, wherever they lie.
void require_same(const Tensor& a, const Tensor& b, const std::string& message);
/// Throws unless `text` contains `part`.
void require_contains(const std::string& text, const std::string& part);

/// Whether `memory` lies in a mapping of memory that ranks of one host share.
bool lies_in_shared_memory(const std::byte* memory);

/// What `action` threw: "CommError: …", "Error: …", "other: …"; "" if it threw nothing.
std::string thrown_by(const std::function<void()>& action);

}  // namespace brigade::test
