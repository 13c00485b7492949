// SPDX-License-Identifier: MIT
// core/cuda/stream_cuda.h - CUDA's streams and events behind Stream and Event, for host code that calls CUDA libraries.
// Read before: core/stream.h. Read next: core/cuda/runtime_cuda.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "core/runtime.h"

namespace brigade {

/// A moment that device and host both know: an event of the device, and when it happened on the host's clock.
struct CudaMoment {
  cudaEvent_t event;
  Clock::time_point time;
};

/// CUDA streams and events of one device, kept for reuse: making one costs microseconds, and a stream that is never
/// destroyed is a name that no other stream gets later, which the allocator relies on. Thread-safe.
class CudaStreamPool {
 public:
  explicit CudaStreamPool(int device) : device_(device) {}

  cudaStream_t take_stream(Priority priority);
  void give_back(cudaStream_t stream, Priority priority) noexcept;
  cudaEvent_t take_event();
  void give_back(cudaEvent_t event) noexcept;

  /// What times of events are measured from. Made anew by refresh_moment() when it is so old that a float of
  /// milliseconds becomes coarse; events recorded before keep theirs.
  std::shared_ptr<const CudaMoment> moment();
  void refresh_moment();

  int device() const { return device_; }

 private:
  std::shared_ptr<const CudaMoment> measure_moment();

  const int device_;
  std::mutex mutex_;
  std::vector<cudaStream_t> streams_[2];  // By priority.
  std::vector<cudaEvent_t> events_;
  std::shared_ptr<const CudaMoment> moment_;
};

/// A point in a CUDA stream.
class CudaEvent final : public EventState {
 public:
  /// Records it on `stream` now.
  CudaEvent(CudaStreamPool& pool, cudaStream_t stream);
  ~CudaEvent() override;

  bool done() const override;
  bool wait_until(Clock::time_point deadline) const override;
  /// To within some microseconds: the device's clock, tied to the host's at a moment that both saw.
  std::optional<Clock::time_point> time() const override;

  cudaEvent_t native() const { return event_; }

 private:
  CudaStreamPool& pool_;
  const cudaEvent_t event_;
  const std::shared_ptr<const CudaMoment> since_;
};

/// A CUDA stream that does not wait for the legacy null stream. Its destructor does not wait for its work.
class CudaStream final : public Stream {
 public:
  CudaStream(CudaStreamPool& pool, Priority priority);
  ~CudaStream() override;

  /// Runs the task now, with this stream as the thread's current one: what it enqueues is what is ordered.
  void submit(std::function<void()> task) override;
  /// The same; `done` is completed by the device, behind what the task enqueued.
  void offer(std::function<void()> task, std::shared_ptr<ManualEvent> done) override;
  void help(const Event&) override {}
  Event record() override;
  /// An event of CUDA is waited for by the device; any other one by the caller, here.
  void wait(const Event& event) override;
  void synchronize() override;

  cudaStream_t native() const { return stream_; }

 private:
  CudaStreamPool& pool_;
  const Priority priority_;
  const cudaStream_t stream_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // Of a task: the first one since the last synchronize().
};

/// The CUDA stream of a stream that a CUDA runtime made. Throws Error for another one.
cudaStream_t native(Stream& stream);
/// Where kernels called on this thread for cuda:`device.index` run; also makes that device the thread's current one.
cudaStream_t current_cuda_stream(Device device);

}  // namespace brigade
