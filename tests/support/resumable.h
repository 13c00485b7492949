// SPDX-License-Identifier: MIT
// tests/support/resumable.h - one rank of a small training run with everything that has state: batch norm of its own,
// dropout, an optimizer, an average, a comm hook. Read before: dist/checkpoint/checkpoint_writer.h.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "dist/checkpoint/checkpoint_writer.h"
#include "dist/ddp.h"

namespace brigade::test {

struct ResumableOptions {
  std::string optimizer = "adamw";
  std::string hook = "none";
  std::uint64_t seed = 1;             ///< Of initial weights.
  std::optional<Device> device = {};  ///< Of parameters; else the group's.
};

class Resumable {
 public:
  Resumable(dist::ProcessGroup& group, const ResumableOptions& options = {});

  /// One step; steps count from 1, and each rank's data are a function of step and rank.
  void step();
  /// The same; then the state is being saved by `writer`, bucket by bucket.
  void step(dist::CheckpointWriter& writer);
  /// Goes on behind the checkpoint.
  void load(const dist::Checkpoint& checkpoint);

  dist::TrainingState state();
  std::int64_t steps_done() const { return done_; }
  /// A checksum of all state of this rank.
  std::uint64_t fingerprint();

 private:
  void backward_of_next();

  dist::ProcessGroup& group_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<dist::Ddp> ddp_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::Ema> ema_;
  std::int64_t done_ = 0;
};

/// A folder that all ranks of the group see, on threads as under MPI. Collective; removed by the rank that made it.
class SharedFolder {
 public:
  explicit SharedFolder(dist::ProcessGroup& group);
  ~SharedFolder();
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool mine_;
};

}  // namespace brigade::test
