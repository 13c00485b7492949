// SPDX-License-Identifier: MIT
// dist/tcp/torchrun_job.h - this process as one rank of a job that has no launcher but its environment: RANK,
// WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets them, or a shell. Read before: dist/launch.h (Job).
#pragma once

#include <memory>
#include <string>

#include "dist/launch.h"
#include "dist/tcp/meeting_point.h"

namespace brigade::dist {

/// What the environment says; nothing without RANK and WORLD_SIZE. Throws Error, in one line, for values that cannot
/// be: "torchrun's environment: RANK must be below WORLD_SIZE; got RANK=2, WORLD_SIZE=2".
struct TorchrunEnvironment {
  int rank = 0, size = 1;
  int local_size =
      1;            ///< LOCAL_WORLD_SIZE; without it, all ranks if rank 0 is at a loopback address, else one.
  Endpoint master;  ///< Where rank 0 waits for the others.
};
std::optional<TorchrunEnvironment> torchrun_environment();

/// Ranks of one host share memory (dist/shm), as ranks of MPI do, and sockets carry the rest.
class TorchrunJob final : public Job {
 public:
  /// Rank 0 listens from now on: throws CommError if it cannot.
  explicit TorchrunJob(const TorchrunEnvironment& self, std::chrono::milliseconds timeout);

  std::string arrivals() const override { return meeting_.arrivals(); }
  std::shared_ptr<Stream> stream() const override { return stream_; }
  std::unique_ptr<Transport> connect(InHost in_host) override;
  /// Groups end by themselves: nothing is left to do.
  void finish() override {}

 private:
  const std::chrono::milliseconds timeout_;
  MeetingPoint meeting_;
  const std::shared_ptr<Stream> stream_;
};

}  // namespace brigade::dist
