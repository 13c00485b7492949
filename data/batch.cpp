// SPDX-License-Identifier: MIT
// data/batch.cpp - gathers samples into a batch.
#include "data/batch.h"

#include <algorithm>

namespace brigade::data {
namespace {

// What ops::augment_images takes for a Placement.
void write_placement(const Placement& p, std::int32_t* to) {
  for (const std::int64_t value : {p.dy, p.dx, std::int64_t{p.flip}, p.cutout_y, p.cutout_x})
    *to++ = static_cast<std::int32_t>(value);
}

}  // namespace

Batch make_batch(const Dataset& set, const Augmenter& augmenter, std::span<const std::int64_t> indices,
                 std::int64_t epoch, std::int64_t step, MemoryFormat format, ImagesAs images) {
  const auto count = static_cast<std::int64_t>(indices.size());
  const bool bytes = images == ImagesAs::bytes;
  const Shape shape{count, kChannels, kSide, kSide};
  Batch batch{
      .images = bytes ? Tensor::empty(shape, DType::u8) : Tensor::empty(shape, DType::f32, {}, format),
      .labels = Tensor::empty({count}, DType::i64),
      .placements = bytes ? Tensor::empty({count, 5}, DType::i32) : Tensor(),
      .indices = {indices.begin(), indices.end()},
      .epoch = epoch,
      .step = step};
  const Strides dense = dense_strides(shape, format);
  const std::uint8_t* all = set.images.data<std::uint8_t>();
  std::int64_t* labels = batch.labels.data<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = indices[static_cast<std::size_t>(i)];
    BRIGADE_CHECK(index >= 0 && index < set.size(), "make_batch: index must be below ", set.size(), "; got ",
                  index);
    labels[i] = set.labels[static_cast<std::size_t>(index)];
    const std::uint8_t* const image = all + index * kImageBytes;
    if (bytes) {
      std::copy_n(image, kImageBytes, batch.images.data<std::uint8_t>() + i * kImageBytes);
      write_placement(augmenter.placement(epoch, index), batch.placements.data<std::int32_t>() + 5 * i);
    } else {
      augmenter.apply(image, epoch, index, batch.images.data<float>() + i * dense[0],
                      {dense[1], dense[2], dense[3]});
    }
  }
  return batch;
}

}  // namespace brigade::data
