// SPDX-License-Identifier: MIT
// core/cuda/graph_cuda.h - captures of a CUDA device: what core/backends.cpp puts behind core/graph.h. No CUDA header.
#pragma once

#include "core/graph.h"

namespace brigade {

std::unique_ptr<Graph> cuda_capture(int index, const std::function<void()>& record);
bool cuda_is_capturing(int index);

/// The memory of a device while its streams are recorded: CudaRuntime's other face.
class CaptureMemory {
 public:
  virtual ~CaptureMemory() = default;
  /// Of device and page-locked memory: CachingAllocator::end_capture().
  struct Pools {
    int device = 0, pinned = 0;
  };
  virtual void begin_capture() = 0;
  virtual Pools end_capture() = 0;
  /// When the calling thread's current stream is done with what it was given.
  virtual void release_pools(const Pools& pools) noexcept = 0;
  virtual bool is_capturing() const = 0;
};

}  // namespace brigade
