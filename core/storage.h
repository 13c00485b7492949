// SPDX-License-Identifier: MIT
// core/storage.h - a range of bytes on a device with a version number. Read next: core/tensor.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/runtime.h"

namespace brigade {

/// A shared range of device memory.
///
/// A slice is a Storage of its own that keeps its parent alive: this is how parameters and gradients are
/// views of flat bucket memory and still have separate versions (updating one bucket must not look like an
/// in-place change of another).
class Storage {
 public:
  Storage() = default;
  Storage(Device device, std::int64_t bytes);
  /// Memory of somebody else's making, which goes when its last user does: `memory` frees it.
  Storage(Device device, std::int64_t bytes, std::shared_ptr<std::byte> memory);

  /// `bytes` starting at `offset` of this range, with a version of its own. Shares memory.
  Storage slice(std::int64_t offset, std::int64_t bytes) const;

  /// Moves the bytes to `device`, behind its current stream's work: all tensors over this storage are there then.
  /// Throws Error if it is, or has, a slice: others point into that memory. Nobody else uses it meanwhile.
  void move_to(Device device) const;

  explicit operator bool() const { return block_ != nullptr; }
  std::byte* data() const { return block_->data; }
  std::int64_t bytes() const { return block_->bytes; }
  Device device() const { return block_->device; }

  /// Counts in-place changes; autograd compares it with the value at save time.
  std::uint64_t version() const { return block_->version.load(std::memory_order_relaxed); }
  void bump_version() const { block_->version.fetch_add(1, std::memory_order_relaxed); }

  /// True if nobody else holds this range (its memory may be adopted without a copy).
  bool unique() const { return block_.use_count() == 1; }
  /// unique(), and not a slice of memory that others may reach as a whole or by other slices.
  bool sole_owner() const { return unique() && !block_->owner; }
  friend bool operator==(const Storage&, const Storage&) = default;

 private:
  struct Block {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    Device device;
    std::atomic<std::uint64_t> version{0};
    std::atomic<bool> sliced = false;   // slice() was called.
    std::shared_ptr<const void> owner;  // Of slices and foreign memory; blocks without one own theirs.

    Block() = default;
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
  };
  std::shared_ptr<Block> block_;
};

/// Copies bytes between any two devices, behind the work of the current streams. With the host at one end it has
/// happened when this returns.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::int64_t bytes);

}  // namespace brigade
