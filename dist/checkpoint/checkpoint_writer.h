// SPDX-License-Identifier: MIT
// dist/checkpoint/checkpoint_writer.h - saves the state of a run while the run goes on.
//
//   at step k   begin() · for each bucket: its update, then add(range) · end()   copies memory, queues writing
//   later       the writer's thread puts the copies on disk, in step_k.partial/
//   later still no rank is unfinished() any more: commit() on all ranks, together; rank 0's thread then writes
//               manifest and marker, renames, points `latest` there and removes old checkpoints
//
// Rank 0 writes what all ranks share (model, optimizer, average), each rank what is its own (buffers, errors kept back
// by a comm hook), so that the folder must be one that all ranks see. Read before:
// dist/checkpoint/checkpoint_folder.h. Read next: dist/checkpoint/training_state.h.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/directory_claim.h"
#include "dist/checkpoint/checkpoint_folder.h"
#include "dist/checkpoint/training_state.h"
#include "dist/process_group.h"

namespace brigade::dist {

struct CheckpointWriterOptions {
  std::filesystem::path folder;
  int keep_last = 3;
  FileSystem* files = &file_system();  ///< Must outlive the writer.
};

/// What became of one checkpoint.
struct SaveOutcome {
  std::int64_t step = 0;
  std::string error;       ///< Empty: it is complete. Names path and reason, of whatever rank.
  std::int64_t bytes = 0;  ///< Of all its files.
  double copy_s = 0;       ///< That training stood still for copies, on rank 0.
  double seconds = 0;      ///< From begin() to the renamed directory.
};

/// One rank's end. All ranks make the same calls in the same order, except for unfinished() and outcome().
class CheckpointWriter {
 public:
  /// Rank 0 creates the folder and claims it. Collective; blocks. Throws Error on every rank if it cannot be written,
  /// if another run writes there, or if some rank does not see it.
  CheckpointWriter(ProcessGroup& group, CheckpointWriterOptions options);
  /// Never blocks longer than a write under way. What was not committed is removed.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  const std::filesystem::path& folder() const { return options_.folder; }

  /// A save of the state behind `step` begins. `state` must live until end(). Nothing may be under way: see drain().
  void begin(std::int64_t step, const TrainingState& state);
  /// Parameters and optimizer state at these positions of the flat order are final: copies them. In order.
  void add(optim::Range range);
  /// Copies what is left. `facts`: manifest without files, of rank 0.
  void end(Manifest facts);

  /// Between end() and commit(): the same on all ranks.
  bool awaits_commit() const;
  /// This rank's files are not on disk yet.
  bool unfinished() const;
  /// No rank is unfinished: the checkpoint is made complete, on rank 0's thread. Blocks for a few words of each rank.
  void commit();
  /// Rank 0: what became of the checkpoint, once it is known; nothing before, and on other ranks.
  std::optional<SaveOutcome> outcome();
  /// Waits until nothing is under way. All ranks get the outcome of what was, unless outcome() has told it. Collective;
  /// blocks.
  std::optional<SaveOutcome> drain();

 private:
  struct Save;
  void queue(std::function<void(Save&)> task);

  ProcessGroup* group_;
  CheckpointWriterOptions options_;
  DirectoryClaim claim_;
  std::shared_ptr<Save> save_;
  bool committed_ = false;
  std::set<std::int64_t> sound_;    // On the stream's thread: see prune_checkpoints().
  std::unique_ptr<Stream> stream_;  // Last: its thread uses the above.
};

}  // namespace brigade::dist
