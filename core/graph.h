// SPDX-License-Identifier: MIT
// core/graph.h - work of a device, recorded once and repeated as a whole: CUDA's graphs, which start some hundred
// kernels at the cost of one. Read before: core/stream.h, core/runtime.h. Read next: core/cuda/graph_cuda.cpp.
#pragma once

#include <functional>
#include <memory>

#include "core/device.h"

namespace brigade {

/// What capture() recorded. Keeps the memory that was allocated meanwhile for the work's own use: in each launch it
/// holds what the work puts there.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Repeats the work, on the calling thread's current stream. Does not block.
  virtual void launch() = 0;
};

/// Calls record(): what it and other threads, by events in between, enqueue for `device` is recorded instead of done.
/// All that differs from launch to launch must come from memory that stays. The work must not wait for the device, nor
/// copy host memory that is not page-locked. Only one capture of a device at a time. Throws Error for the CPU, what
/// record() throws, and Error if the device refuses the recording.
[[nodiscard]] std::unique_ptr<Graph> capture(Device device, const std::function<void()>& record);

/// Whether capture() is recording `device` now, on whatever thread: nobody may then wait for events of it.
bool is_capturing(Device device);

}  // namespace brigade
