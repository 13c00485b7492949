// SPDX-License-Identifier: MIT
// apps/common/device_batches.cpp - see the header.
#include "apps/common/device_batches.h"

#include <cstring>
#include <utility>

namespace brigade::apps {

data::Batch DeviceBatches::operator()(data::Batch batch) {
  if (device_ == Device{}) return batch;
  Slot& slot = slots_[next_++ % slots_.size()];
  slot.free.wait();
  const std::int64_t images = aligned(batch.images.bytes()), bytes = images + batch.labels.bytes();
  if (!slot.memory || slot.memory.bytes() < bytes) slot.memory = runtime(device_).allocate_pinned(bytes);

  const auto send = [&](Tensor& t, std::byte* pinned) {
    Tensor there = Tensor::empty(t.shape(), t.dtype(), device_, t.memory_format());
    std::memcpy(pinned, t.raw(), static_cast<std::size_t>(t.bytes()));
    runtime(device_).copy_from_pinned(there.raw(), pinned, t.bytes());
    t = std::move(there);
  };
  send(batch.images, slot.memory.data());
  send(batch.labels, slot.memory.data() + images);
  slot.free = runtime(device_).current_stream().record();
  return batch;
}

}  // namespace brigade::apps
