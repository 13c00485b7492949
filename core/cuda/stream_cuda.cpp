// SPDX-License-Identifier: MIT
// core/cuda/stream_cuda.cpp - streams and events of a CUDA device.
#include "core/cuda/stream_cuda.h"

#include <thread>
#include <utility>

#include "core/cuda/check_cuda.h"
#include "core/cuda/devices.h"

namespace brigade {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;

// cudaEventElapsedTime gives a float of milliseconds: behind 60 s its steps are 4 microseconds.
constexpr std::chrono::seconds kMomentLasts{60};
constexpr int kMomentTries = 8;
// How long a wait with a deadline sleeps between two looks: CUDA has no such wait.
constexpr std::chrono::microseconds kLook{50};

}  // namespace

cudaStream_t CudaStreamPool::take_stream(Priority priority) {
  {
    std::lock_guard lock(mutex_);
    auto& free = streams_[static_cast<int>(priority)];
    if (!free.empty()) {
      const cudaStream_t stream = free.back();
      free.pop_back();
      return stream;
    }
  }
  use_cuda_device(device_);
  int least = 0, greatest = 0;  // Smaller numbers are more urgent.
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                          priority == Priority::high ? greatest : least),
             "cudaStreamCreateWithPriority", "to make a stream of ", Device{DeviceType::cuda, device_});
  return stream;
}

void CudaStreamPool::give_back(cudaStream_t stream, Priority priority) noexcept {
  std::lock_guard lock(mutex_);
  streams_[static_cast<int>(priority)].push_back(stream);
}

cudaEvent_t CudaStreamPool::take_event() {
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      const cudaEvent_t event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  use_cuda_device(device_);
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
  return event;
}

void CudaStreamPool::give_back(cudaEvent_t event) noexcept {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

// The host sees the event done somewhat later than the device was there, so the shortest of some tries is taken, and
// its middle.
std::shared_ptr<const CudaMoment> CudaStreamPool::measure_moment() {
  const cudaStream_t stream = take_stream(Priority::high);
  auto best = Clock::duration::max();
  std::shared_ptr<CudaMoment> moment;
  for (int i = 0; i < kMomentTries; ++i) {
    // Never given back to the pool: events of any age may refer to it.
    auto next = std::shared_ptr<CudaMoment>(new CudaMoment{take_event(), {}}, [](CudaMoment* old) {
      static_cast<void>(cudaEventDestroy(old->event));
      delete old;
    });
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const Clock::time_point before = Clock::now();
    check_cuda(cudaEventRecord(next->event, stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(next->event), "cudaEventSynchronize");
    const Clock::duration took = Clock::now() - before;
    if (took >= best) continue;
    best = took;
    next->time = before + took / 2;
    moment = std::move(next);
  }
  give_back(stream, Priority::high);
  return moment;
}

std::shared_ptr<const CudaMoment> CudaStreamPool::moment() {
  {
    std::lock_guard lock(mutex_);
    if (moment_) return moment_;
  }
  auto first = measure_moment();
  std::lock_guard lock(mutex_);
  if (!moment_) moment_ = std::move(first);
  return moment_;
}

void CudaStreamPool::refresh_moment() {
  if (Clock::now() - moment()->time < kMomentLasts) return;
  auto next = measure_moment();
  std::lock_guard lock(mutex_);
  moment_ = std::move(next);
}

CudaEvent::CudaEvent(CudaStreamPool& pool, cudaStream_t stream)
    : pool_(pool), event_(pool.take_event()), since_(pool.moment()) {
  use_cuda_device(pool.device());
  check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord", "on ",
             Device{DeviceType::cuda, pool.device()});
}

// Whoever waits on the device waits for what was recorded, not for the event's next use.
CudaEvent::~CudaEvent() { pool_.give_back(event_); }

bool CudaEvent::done() const {
  const cudaError_t code = cudaEventQuery(event_);
  if (code == cudaErrorNotReady) return false;
  check_cuda(code, "cudaEventQuery", "on ", Device{DeviceType::cuda, pool_.device()});
  return true;
}

bool CudaEvent::wait_until(Clock::time_point deadline) const {
  if (deadline == Clock::time_point::max()) {
    check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize", "on ",
               Device{DeviceType::cuda, pool_.device()});
    return true;
  }
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

std::optional<Clock::time_point> CudaEvent::time() const {
  if (!done()) return std::nullopt;
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, since_->event, event_), "cudaEventElapsedTime");
  pool_.refresh_moment();
  return since_->time + duration_cast<Clock::duration>(duration<double, std::milli>(milliseconds));
}

CudaStream::CudaStream(CudaStreamPool& pool, Priority priority)
    : pool_(pool), priority_(priority), stream_(pool.take_stream(priority)) {}

// The next one who is given it works behind what is still under way.
CudaStream::~CudaStream() { pool_.give_back(stream_, priority_); }

void CudaStream::submit(std::function<void()> task) {
  const StreamScope scope(Device{DeviceType::cuda, pool_.device()}, *this);
  try {
    task();
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void CudaStream::offer(std::function<void()> task, std::shared_ptr<ManualEvent> done) {
  submit(std::move(task));
  auto held = std::make_unique<std::shared_ptr<ManualEvent>>(std::move(done));
  const auto complete = [](void* data) {
    const std::unique_ptr<std::shared_ptr<ManualEvent>> event(
        static_cast<std::shared_ptr<ManualEvent>*>(data));
    (*event)->complete();
  };
  check_cuda(cudaLaunchHostFunc(stream_, complete, held.get()), "cudaLaunchHostFunc");
  static_cast<void>(held.release());  // The callback's now.
}

Event CudaStream::record() { return Event(std::make_shared<CudaEvent>(pool_, stream_)); }

void CudaStream::wait(const Event& event) {
  const auto* const recorded = dynamic_cast<const CudaEvent*>(event.state());
  if (recorded == nullptr) return event.wait();
  use_cuda_device(pool_.device());
  check_cuda(cudaStreamWaitEvent(stream_, recorded->native(), 0), "cudaStreamWaitEvent");
}

void CudaStream::synchronize() {
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", "on ",
             Device{DeviceType::cuda, pool_.device()});
  std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

cudaStream_t native(Stream& stream) {
  const auto* const cuda = dynamic_cast<CudaStream*>(&stream);
  BRIGADE_CHECK(cuda != nullptr, "native: needs a stream of a CUDA device");
  return cuda->native();
}

cudaStream_t current_cuda_stream(Device device) {
  use_cuda_device(device.index);
  return native(runtime(device).current_stream());
}

}  // namespace brigade
