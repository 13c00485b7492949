// SPDX-License-Identifier: MIT
// dist/device_choice.h - which device a rank computes on, and how tensors travel between the devices of all ranks:
// found out before any library is asked that might hang or refuse. Read before: dist/device_transport.h.
// Read next: dist/launch.cpp, which calls this on every rank.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dist/device_transport.h"

namespace brigade::dist {

/// What a rank says of itself.
struct RankPlace {
  std::string host;
  std::int64_t process = 0;
  std::string gpu;     ///< UUID of the device it would take; empty: there is none…
  std::string reason;  ///< … because of this.
  int nccl = 0;        ///< Version of the library that is loaded, as nccl.h counts; 0: not compiled in.
};

enum class CarrierKind : std::uint8_t {
  none,         ///< Some rank has no device: all compute on the CPU.
  lone,         ///< One rank.
  nccl,         ///< A device each.
  nccl_shared,  ///< Several processes on a device, which NCCL can do since 2.30 if it is told to.
  ipc,     ///< Memory of the device itself, which ranks of a host lend each other; or staged, if that fails.
  staged,  ///< Pinned host memory, over the host's transport.
};

struct DeviceChoice {
  CarrierKind kind = CarrierKind::none;
  std::string why;  ///< "2 ranks have a GPU each", "ranks 0, 1 share GPU-1f2e…, which NCCL 2.28.9 refuses"
};

/// The first version of NCCL that lets ranks share a device, with NCCL_MULTI_RANK_GPU_ENABLE=1.
inline constexpr int kNcclSharesDevices = 23000;

/// Bytes of each half of the memory that a rank lends, where nothing speaks for another number. Not measured yet.
inline constexpr std::int64_t kIpcHalfBytes = std::int64_t{4} << 20;
/// More ranks than this do not read each other's memory.
inline constexpr int kMostRanksByIpc = 16;

/// By all ranks' places, in rank order: the same on every rank. A pure function.
DeviceChoice choose_carrier(std::span<const RankPlace> places);

/// Of `devices` on a host, that of its rank `local_rank`: in turns.
constexpr int device_index(int local_rank, int devices) { return local_rank % devices; }

/// "auto", "cpu", "cuda": what users ask for. auto takes devices where every rank has one.
std::span<const std::string_view> device_names();
/// The transport that the device asked for needs, over `host`: that itself for the CPU. Collective. Throws Error, on
/// all ranks alike, for cuda where some rank has none, and for an unknown name; CommError where ranks do not connect
/// within `timeout`. `no_gpu_because`: why this rank takes none, whatever there is; empty: it may.
std::unique_ptr<Transport> with_device(std::unique_ptr<Transport> host, std::string_view wanted,
                                       std::chrono::milliseconds timeout,
                                       const std::string& no_gpu_because = {});

// In dist/backends.cpp.

/// What a running MPI says of itself and CUDA; empty without one.
std::string mpi_and_cuda();
/// Of the library that is loaded; 0: not compiled in.
int nccl_version();
/// See dist/nccl/nccl_carrier.h. Throws Error if it is not compiled in.
std::unique_ptr<Carrier> make_nccl(Transport& host, Device device, std::chrono::milliseconds timeout);
/// See dist/ipc/ipc_carrier.h. nullptr and why_not, on all ranks alike, if it does not work.
std::unique_ptr<Carrier> make_ipc(Transport& host, Device device, std::string& why_not,
                                  std::int64_t half_bytes = kIpcHalfBytes);

}  // namespace brigade::dist
