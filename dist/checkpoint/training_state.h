// SPDX-License-Identifier: MIT
// dist/checkpoint/training_state.h - all that a run must find again to go on as if nothing had happened, by name, and
// how it comes back from a checkpoint. Read before: nn/optim/optimizer.h, dist/checkpoint/checkpoint_folder.h.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/safetensors.h"
#include "dist/bucket_plan.h"
#include "dist/checkpoint/checkpoint_folder.h"
#include "nn/optim/ema.h"
#include "nn/optim/optimizer.h"

namespace brigade::dist {

/// What one rank holds. Tensors share memory with the run; the pointers must outlive it.
struct TrainingState {
  NamedTensors
      model;  ///< Parameters and buffers by torchvision's names (nn::state_dict). Alike on all ranks…
  NamedTensors of_rank;  ///< … but for these: buffers, and what a comm hook has kept back.
  optim::Optimizer* optimizer = nullptr;
  const optim::Ema* ema = nullptr;  ///< nullptr: none.
  Generator* generator = nullptr;   ///< This rank's.
};

/// Bytes of elements in a checkpoint of `ranks` ranks.
std::int64_t checkpoint_bytes(const TrainingState& state, int ranks);

/// Names of the files that all ranks share.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kEmaFile = "ema.safetensors";

/// Brings `state` to what the checkpoint holds. Throws one Error that lists every missing, unexpected and mismatched
/// tensor of all files, and then has changed nothing. With another number of ranks than saved it there are no states of
/// single ranks to go on from: all take rank 0's buffers and generator, and what comm hooks had kept back is lost.
void load_checkpoint(const Checkpoint& checkpoint, const TrainingState& state, int rank, int size);

/// A part of a flat tensor that one rank holds: elements [range.begin, range.end) of the whole.
struct Shard {
  ElementRange range;
  Tensor elements;  ///< 1-D.
};
/// Elements `wanted` of the whole, put together from shards that were cut in another way, in any order. Throws Error
/// naming the first element that is in none of them or in several, or a shard whose size is not that of its range.
Tensor reshard(std::span<const Shard> shards, ElementRange wanted);
/// How `elements` are cut for `size` ranks: rank's range, equal but for one kPartMultiple.
ElementRange shard_range(std::int64_t elements, int rank, int size);

}  // namespace brigade::dist
