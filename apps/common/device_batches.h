// SPDX-License-Identifier: MIT
// apps/common/device_batches.h - batches on their way to the device that computes. Read before: data/batch.h.
#pragma once

#include <array>

#include "core/runtime.h"
#include "data/loader.h"

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

/// What a loader should bring to be trained on by `device`: a GPU takes bytes, a quarter of the floats, and crops,
/// flips and normalises them itself. With noise, which only the CPU adds, floats.
data::LoaderOptions loading_for(Device device, data::LoaderOptions options);

/// Makes of bytes that lie on a device, and their placements, the images that a loader of floats would have brought.
/// Batches of floats stay what they are.
class DeviceImages {
 public:
  /// For batches of a Loader with these options.
  DeviceImages(Device device, const data::Dataset& set, const data::LoaderOptions& options);

  /// Enqueues; a step that is captured may hold it.
  data::Batch operator()(data::Batch batch) const;

 private:
  Tensor values_;  // What a byte becomes; undefined: batches bring floats.
  std::int64_t cutout_;
  MemoryFormat format_;
};

}  // namespace brigade::apps
