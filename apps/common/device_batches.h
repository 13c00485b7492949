// SPDX-License-Identifier: MIT
// apps/common/device_batches.h - batches on their way to the device that computes. Read before: data/batch.h.
#pragma once

#include <array>

#include "core/runtime.h"
#include "data/batch.h"

namespace brigade::apps {

/// Copies batches to a device without waiting: through page-locked memory, behind what the current stream has to do.
/// Two batches may be under way; a third waits for the first. A batch that is there already stays what it is.
class DeviceBatches {
 public:
  explicit DeviceBatches(Device device) : device_(device) {}

  data::Batch operator()(data::Batch batch);
  /// Into the tensors of `to`, which are made where there are none.
  void copy(const data::Batch& batch, data::Batch& to);

 private:
  struct Slot {
    Storage memory;
    Event free;  // The device has read it.
  };
  Device device_;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

}  // namespace brigade::apps
