// SPDX-License-Identifier: MIT
// tests/core/cuda_gate.h - holds up a CUDA stream: a host function that the device calls and that waits.
#pragma once

#include <chrono>
#include <memory>

#include "core/cuda/check_cuda.h"
#include "core/cuda/stream_cuda.h"

namespace brigade::test {

/// Streams that stand still until it is opened, or for a minute.
struct Gate {
  std::shared_ptr<ManualEvent> shut = std::make_shared<ManualEvent>();
  ~Gate() { open(); }  // A failed test must not leave the device waiting for ever.
  void open() { shut->complete(); }
  /// The device holds the event too: it may come late.
  void hold(Stream& stream) {
    const auto wait = [](void* data) {
      const std::unique_ptr<std::shared_ptr<ManualEvent>> event(
          static_cast<std::shared_ptr<ManualEvent>*>(data));
      static_cast<void>((*event)->wait_until(Clock::now() + std::chrono::seconds(60)));
    };
    check_cuda(cudaLaunchHostFunc(native(stream), wait, new std::shared_ptr(shut)), "cudaLaunchHostFunc");
  }
};

}  // namespace brigade::test
