// SPDX-License-Identifier: MIT
// dist/backends.cpp - which backends were compiled in. The only #if of dist.
#include "dist/device_choice.h"
#include "dist/job_watch.h"
#include "dist/launch.h"

#if BRIGADE_HAS_MPI
#include "dist/mpi/mpi_calls.h"
#include "dist/mpi/mpi_job.h"
#include "dist/mpi/peer_watch.h"
#endif

#if BRIGADE_HAS_CUDA
#include "dist/ipc/ipc_carrier.h"
#endif

#if BRIGADE_HAS_NCCL
#include "dist/nccl/nccl_calls.h"
#include "dist/nccl/nccl_carrier.h"
#endif

namespace brigade::dist {

std::vector<std::string_view> backend_names() { return {"auto", "threads", "mpi", "plain_mpi", "tcp"}; }

std::optional<MpiLibrary> mpi_library() {
#if BRIGADE_HAS_MPI
  return MpiLibrary{.compiled = compiled_mpi(), .loaded = loaded_mpi()};
#else
  return std::nullopt;
#endif
}

std::string mpi_and_cuda() {
#if BRIGADE_HAS_MPI
  return mpi_cuda_support();
#else
  return "";
#endif
}

int nccl_version() {
#if BRIGADE_HAS_NCCL
  return nccl_versions().loaded;
#else
  return 0;
#endif
}

std::unique_ptr<Carrier> make_nccl(Transport& host, Device device, std::chrono::milliseconds timeout) {
#if BRIGADE_HAS_NCCL
  return make_nccl_carrier(host, device, timeout);
#else
  static_cast<void>(host), static_cast<void>(device), static_cast<void>(timeout);
  fail("nccl: not compiled in; install NCCL and configure with -DBRIGADE_WITH_NCCL=ON");
#endif
}

std::unique_ptr<Carrier> make_ipc(Transport& host, Device device, std::string& why_not,
                                  std::int64_t half_bytes) {
#if BRIGADE_HAS_CUDA
  return make_ipc_carrier(host, device, why_not, half_bytes);
#else
  static_cast<void>(host), static_cast<void>(device), static_cast<void>(half_bytes);
  why_not = "this build has no CUDA";
  return nullptr;
#endif
}

std::shared_ptr<Job> join_mpi_job(std::chrono::milliseconds timeout) {
#if BRIGADE_HAS_MPI
  return std::make_shared<MpiJob>(timeout);
#else
  static_cast<void>(timeout);
  fail("backend mpi: not compiled in; install an MPI library and configure with -DBRIGADE_WITH_MPI=ON");
#endif
}

std::unique_ptr<JobWatch> watch_job(std::function<void(const std::string&)> lost) {
#if BRIGADE_HAS_MPI
  const LaunchEnvironment self = launch_environment();
  if (self.size == 1) return nullptr;
  auto board = ArrivalBoard::attach(self, ArrivalBoard::kNowhere);
  return board ? std::make_unique<PeerWatch>(self, std::move(board), std::move(lost)) : nullptr;
#else
  static_cast<void>(lost);
  return nullptr;
#endif
}

}  // namespace brigade::dist
