// SPDX-License-Identifier: MIT
// kernels/cuda/workspace.h - scratch memory for one call of a library.
#pragma once

#include <cstdint>

#include "core/storage.h"

namespace brigade::cuda {

/// `bytes` of memory for work enqueued on the calling thread's current stream while this lives. It may go as soon as
/// the work is enqueued: the runtime hands its memory out again to work behind it only.
class Workspace {
 public:
  Workspace(Device device, std::int64_t bytes)
      : storage_(bytes > 0 ? Storage(device, bytes + kLibraryAlignment - 1) : Storage()) {}

  /// On a boundary of 256 bytes, which cuBLASLt demands; nullptr for none.
  void* data() const {
    if (!storage_) return nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    return storage_.data() + (kLibraryAlignment - address % kLibraryAlignment) % kLibraryAlignment;
  }

 private:
  static constexpr std::int64_t kLibraryAlignment = 256;
  Storage storage_;
};

}  // namespace brigade::cuda
