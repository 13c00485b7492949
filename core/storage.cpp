// SPDX-License-Identifier: MIT
// core/storage.cpp - ownership of device memory.
#include "core/storage.h"

#include <utility>

namespace brigade {

Storage::Storage(Device device, std::int64_t bytes) : block_(std::make_shared<Block>()) {
  block_->data = static_cast<std::byte*>(runtime(device).allocate(bytes));
  block_->bytes = bytes;
  block_->device = device;
}

Storage::Storage(Device device, std::int64_t bytes, std::shared_ptr<std::byte> memory)
    : block_(std::make_shared<Block>()) {
  BRIGADE_CHECK(memory != nullptr, "storage: needs memory; got none");
  block_->data = memory.get();
  block_->bytes = bytes;
  block_->device = device;
  block_->owner = std::move(memory);
}

Storage::Block::~Block() {
  if (data != nullptr && !owner) runtime(device).release(data, bytes);
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes) {
  if (to_device == from_device) return runtime(to_device).copy_on_device(to, from, bytes);
  if (from_device.type == DeviceType::cpu) return runtime(to_device).copy_from_host(to, from, bytes);
  if (to_device.type == DeviceType::cpu) return runtime(from_device).copy_to_host(to, from, bytes);
  // Between two devices only when something is set up: by way of the host.
  const Storage between(Device{}, bytes);
  runtime(from_device).copy_to_host(between.data(), from, bytes);
  runtime(to_device).copy_from_host(to, between.data(), bytes);
}

void Storage::move_to(Device device) const {
  if (device == this->device()) return;
  BRIGADE_CHECK(!block_->owner && !block_->sliced, "move_to: ", this->device(),
                " memory that is part of a larger range ",
                "cannot move; move a module before Ddp takes its memory");
  auto* const memory = static_cast<std::byte*>(runtime(device).allocate(bytes()));
  try {
    copy_bytes(memory, device, data(), this->device(), bytes());
  } catch (...) {
    runtime(device).release(memory, bytes());
    throw;
  }
  runtime(this->device()).release(data(), bytes());
  block_->data = memory;
  block_->device = device;
}

Storage Storage::slice(std::int64_t offset, std::int64_t bytes) const {
  BRIGADE_CHECK(offset >= 0 && bytes >= 0 && offset <= this->bytes() && bytes <= this->bytes() - offset,
                "slice: range must lie in ", this->bytes(), " bytes; got offset ", offset, ", bytes ", bytes);
  block_->sliced = true;
  Storage part;
  part.block_ = std::make_shared<Block>();
  part.block_->data = data() + offset;
  part.block_->bytes = bytes;
  part.block_->device = device();
  part.block_->owner = block_;
  return part;
}

}  // namespace brigade
