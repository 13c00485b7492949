// SPDX-License-Identifier: MIT
// tests/fake_gpu/nccl_remote.h - ranks of other processes in an emulated NCCL's world: the process that made the id has
// the world, and the others send it their calls, with the bytes, over a socket. Read before: nccl_world.h.
#pragma once

#include <memory>

#include "tests/fake_gpu/nccl_world.h"

namespace fake_gpu {

using FindWorld = std::shared_ptr<NcclWorld> (*)(std::uint64_t number, int size);

/// From now on processes of this machine are served with worlds that `find` knows. Once a process.
void serve_nccl(FindWorld find);

/// World `number` of process `process`, for one rank; nullptr if that does not answer.
std::shared_ptr<NcclRanks> connect_nccl(std::int64_t process, std::uint64_t number, int size);

}  // namespace fake_gpu
