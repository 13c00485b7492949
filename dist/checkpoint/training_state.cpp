// SPDX-License-Identifier: MIT
// dist/checkpoint/training_state.cpp - loading: everything is read and compared before the first copy.
#include "dist/checkpoint/training_state.h"

#include <algorithm>

#include "kernels/ops.h"
#include "nn/load_tensors.h"

namespace brigade::dist {
namespace {

std::int64_t bytes_of(const NamedTensors& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes();
  return bytes;
}

void append(NamedTensors& to, const std::string& prefix, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) to.emplace_back(prefix + name, tensor);
}

}  // namespace

std::int64_t checkpoint_bytes(const TrainingState& state, int ranks) {
  return bytes_of(state.model) + bytes_of(state.optimizer->state()) +
         (state.ema != nullptr ? bytes_of(state.ema->state()) : 0) + ranks * bytes_of(state.of_rank);
}

void load_checkpoint(const Checkpoint& checkpoint, const TrainingState& state, int rank, int size) {
  const Manifest& manifest = checkpoint.manifest;
  NamedTensors own, given;
  const auto holds = [&](const std::string& name) {
    return std::any_of(manifest.files.begin(), manifest.files.end(),
                       [&](const CheckpointFile& file) { return file.name == name; });
  };
  const auto expect = [&](const std::string& file, const std::string& prefix, const NamedTensors& targets) {
    BRIGADE_CHECK(holds(file), "checkpoint ", checkpoint.directory.string(), ": the manifest does not list ",
                  file, ", so that nobody knows whether it is right");
    append(own, prefix, targets);
    append(given, prefix, map_safetensors(checkpoint.directory / file).tensors);
  };
  expect(kModelFile, "model ", state.model);
  expect(kOptimizerFile, "optimizer ", state.optimizer->state());
  // A file that is there must have somewhere to go, and the other way round.
  if (holds(kEmaFile))
    expect(kEmaFile, "ema ", state.ema != nullptr ? state.ema->state() : NamedTensors());
  else if (state.ema != nullptr)
    append(own, "ema ", state.ema->state());
  // After the model: a rank's own buffers are copied over those of rank 0.
  const bool same_size = size == manifest.world_size;
  if (same_size) expect(rank_file_name(rank), "rank ", state.of_rank);

  try {
    nn::load_tensors(own, given);
  } catch (const Error& error) {
    fail(str("checkpoint ", checkpoint.directory.string(), ": ", error.what()));
  }
  state.optimizer->set_steps(manifest.optimizer_steps);
  *state.generator = manifest.generators[same_size ? static_cast<std::size_t>(rank) : 0];
}

Tensor reshard(std::span<const Shard> shards, ElementRange wanted) {
  BRIGADE_CHECK(!shards.empty() && wanted.begin >= 0 && wanted.begin <= wanted.end,
                "reshard: needs shards and a range in order; got ", shards.size(), " shards, [", wanted.begin,
                ", ", wanted.end, ")");
  std::vector<Shard> sorted(shards.begin(), shards.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Shard& a, const Shard& b) { return a.range.begin < b.range.begin; });
  Tensor out = Tensor::empty({wanted.count()}, sorted.front().elements.dtype());
  std::int64_t at = wanted.begin, covered = 0;  // All elements before `covered` were in some shard.
  for (const Shard& shard : sorted) {
    BRIGADE_CHECK(shard.elements.dims() == 1 && shard.elements.numel() == shard.range.count(),
                  "reshard: elements [", shard.range.begin, ", ", shard.range.end,
                  ") must be a vector of that size; got ", shard.elements);
    BRIGADE_CHECK(shard.range.count() == 0 || shard.range.begin >= covered, "reshard: element ",
                  shard.range.begin, " is in several shards");
    covered = std::max(covered, shard.range.end);
    const std::int64_t begin = std::max(at, shard.range.begin), end = std::min(wanted.end, shard.range.end);
    if (begin >= end) continue;
    BRIGADE_CHECK(begin == at, "reshard: element ", at, " is in no shard");
    Tensor part = out.slice(0, begin - wanted.begin, end - wanted.begin);
    ops::copy_(part, shard.elements.slice(0, begin - shard.range.begin, end - shard.range.begin));
    at = end;
  }
  BRIGADE_CHECK(at == wanted.end, "reshard: element ", at, " is in no shard");
  return out;
}

ElementRange shard_range(std::int64_t elements, int rank, int size) {
  BRIGADE_CHECK(elements >= 0 && size >= 1 && rank >= 0 && rank < size,
                "shard: needs elements and 0 <= rank < size; got ", elements, " elements, rank ", rank,
                ", size ", size);
  // Cuts lie on cache lines, as those of buckets do.
  const std::int64_t lines = (elements + kPartMultiple - 1) / kPartMultiple;
  const auto cut = [&](std::int64_t r) {
    return std::min(elements, (lines / size * r + std::min<std::int64_t>(r, lines % size)) * kPartMultiple);
  };
  return {cut(rank), cut(rank + 1)};
}

}  // namespace brigade::dist
