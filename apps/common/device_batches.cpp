// SPDX-License-Identifier: MIT
// apps/common/device_batches.cpp - see the header.
#include "apps/common/device_batches.h"

#include <cstring>
#include <utility>

#include "core/fault_point.h"
#include "kernels/ops.h"

namespace brigade::apps {

data::Batch DeviceBatches::operator()(data::Batch batch) {
  if (batch.images.device() == device_) return batch;
  data::Batch there;
  copy(batch, there);
  batch.images = there.images;
  batch.labels = there.labels;
  batch.placements = there.placements;
  return batch;
}

void DeviceBatches::copy(const data::Batch& batch, data::Batch& to) {
  const std::array<std::pair<const Tensor*, Tensor*>, 3> parts{
      {{&batch.images, &to.images}, {&batch.labels, &to.labels}, {&batch.placements, &to.placements}}};
  Slot& slot = slots_[next_++ % slots_.size()];
  slot.free.wait();
  std::int64_t bytes = 0;
  for (const auto& [here, there] : parts)
    if (here->defined()) bytes += aligned(here->bytes());
  if (!slot.memory || slot.memory.bytes() < bytes) slot.memory = runtime(device_).allocate_pinned(bytes);

  std::byte* pinned = slot.memory.data();
  for (const auto& [here, there] : parts) {
    if (!here->defined()) continue;
    if (!there->defined())
      *there = Tensor::empty(here->shape(), here->dtype(), device_, here->memory_format());
    std::memcpy(pinned, here->raw(), static_cast<std::size_t>(here->bytes()));
    runtime(device_).copy_from_pinned(there->raw(), pinned, here->bytes());
    pinned += aligned(here->bytes());
  }
  slot.free = runtime(device_).current_stream().record();
}

data::LoaderOptions loading_for(Device device, data::LoaderOptions options) {
  if (device != Device{} && options.augment.noise_std == 0) options.images = data::ImagesAs::bytes;
  return options;
}

DeviceImages::DeviceImages(Device device, const data::Dataset& set, const data::LoaderOptions& options)
    : cutout_(options.augment.cutout), format_(options.format) {
  if (options.images == data::ImagesAs::bytes)
    values_ = data::Augmenter(options.augment, set.normalization, options.seed).values().to(device);
}

data::Batch DeviceImages::operator()(data::Batch batch) const {
  if (!values_.defined()) return batch;
  batch.images = ops::augment_images(batch.images, batch.placements, values_, cutout_, DType::f32, format_);
  fault_point(FaultAt::data, batch.images);  // As the loader does with floats.
  return batch;
}

}  // namespace brigade::apps
