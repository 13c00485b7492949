// SPDX-License-Identifier: MIT
// data/batch.h - what one training or evaluation step is fed with. Read before: data/augment.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "data/augment.h"
#include "data/dataset.h"

namespace brigade::data {

/// What a batch brings: images ready for the network, or their bytes and what each undergoes, for a device that makes
/// the same images of them (ops::augment_images).
enum class ImagesAs : std::uint8_t { floats, bytes };

struct Batch {
  Tensor images{};                      ///< f32 [B, 3, 32, 32], normalised; or u8, as in the data set
  Tensor labels{};                      ///< i64 [B]
  Tensor placements{};                  ///< i32 [B, 5] beside bytes: the Placement of each, in its order.
  std::vector<std::int64_t> indices{};  ///< B positions in the data set
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< Within the epoch.
  /// Where the epoch's order goes on behind the batches of this step on all ranks: what a run that is resumed needs.
  std::int64_t end = 0;
  bool uneven = false;  ///< Ranks may have one sample more or less: of LoaderOptions::rest.

  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }
};

/// The samples `indices` of `set` as they are in `epoch`, in fresh memory. Runs on the calling thread alone.
/// `set` must have passed check_dataset(); throws Error for an index outside of it. `format` is that of floats.
Batch make_batch(const Dataset& set, const Augmenter& augmenter, std::span<const std::int64_t> indices,
                 std::int64_t epoch, std::int64_t step, MemoryFormat format = MemoryFormat::channels_last,
                 ImagesAs images = ImagesAs::floats);

}  // namespace brigade::data
