// SPDX-License-Identifier: MIT
// data/batch.cpp - gathers samples into a batch.
#include "data/batch.h"

namespace brigade::data {

Batch make_batch(const Dataset& set, const Augmenter& augmenter, std::span<const std::int64_t> indices,
                 std::int64_t epoch, std::int64_t step, MemoryFormat format) {
  const auto count = static_cast<std::int64_t>(indices.size());
  Batch batch{.images = Tensor::empty({count, kChannels, kSide, kSide}, DType::f32, {}, format),
              .labels = Tensor::empty({count}, DType::i64),
              .indices = {indices.begin(), indices.end()},
              .epoch = epoch,
              .step = step};
  const Strides dense = dense_strides(batch.images.shape(), format);
  const std::uint8_t* images = set.images.data<std::uint8_t>();
  float* out = batch.images.data<float>();
  std::int64_t* labels = batch.labels.data<std::int64_t>();
  for (const std::int64_t index : indices) {
    BRIGADE_CHECK(index >= 0 && index < set.size(), "make_batch: index must be below ", set.size(), "; got ",
                  index);
    augmenter.apply(images + index * kImageBytes, epoch, index, out, {dense[1], dense[2], dense[3]});
    *labels++ = set.labels[static_cast<std::size_t>(index)];
    out += dense[0];
  }
  return batch;
}

}  // namespace brigade::data
