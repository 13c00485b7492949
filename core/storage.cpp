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

Storage Storage::slice(std::int64_t offset, std::int64_t bytes) const {
  BRIGADE_CHECK(offset >= 0 && bytes >= 0 && offset <= this->bytes() && bytes <= this->bytes() - offset,
                "slice: range must lie in ", this->bytes(), " bytes; got offset ", offset, ", bytes ", bytes);
  Storage part;
  part.block_ = std::make_shared<Block>();
  part.block_->data = data() + offset;
  part.block_->bytes = bytes;
  part.block_->device = device();
  part.block_->owner = block_;
  return part;
}

}  // namespace brigade
