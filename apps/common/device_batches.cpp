// SPDX-License-Identifier: MIT
// apps/common/device_batches.cpp - see the header.
#include "apps/common/device_batches.h"

#include <cstring>
#include <utility>

namespace brigade::apps {

data::Batch DeviceBatches::operator()(data::Batch batch) {
  if (batch.images.device() == device_) return batch;
  data::Batch there;
  copy(batch, there);
  batch.images = there.images;
  batch.labels = there.labels;
  return batch;
}

void DeviceBatches::copy(const data::Batch& batch, data::Batch& to) {
  Slot& slot = slots_[next_++ % slots_.size()];
  slot.free.wait();
  const std::int64_t images = aligned(batch.images.bytes()), bytes = images + batch.labels.bytes();
  if (!slot.memory || slot.memory.bytes() < bytes) slot.memory = runtime(device_).allocate_pinned(bytes);

  const auto send = [&](const Tensor& t, std::byte* pinned, Tensor& there) {
    if (!there.defined()) there = Tensor::empty(t.shape(), t.dtype(), device_, t.memory_format());
    std::memcpy(pinned, t.raw(), static_cast<std::size_t>(t.bytes()));
    runtime(device_).copy_from_pinned(there.raw(), pinned, t.bytes());
  };
  send(batch.images, slot.memory.data(), to.images);
  send(batch.labels, slot.memory.data() + images, to.labels);
  slot.free = runtime(device_).current_stream().record();
}

}  // namespace brigade::apps
