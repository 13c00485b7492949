// SPDX-License-Identifier: MIT
// core/cuda/runtime_cuda.cpp - the runtime of a CUDA device: memory from the caching allocator, streams, copies.
// Read before: core/cuda/caching_allocator.h, core/cuda/stream_cuda.h.
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "core/cuda/caching_allocator.h"
#include "core/cuda/check_cuda.h"
#include "core/cuda/devices.h"
#include "core/cuda/graph_cuda.h"
#include "core/cuda/stream_cuda.h"
#include "core/storage.h"

namespace brigade {
namespace {

class CudaMemory : public DeviceMemory {
 public:
  explicit CudaMemory(CudaStreamPool& pool) : pool_(pool) {}

  void* allocate(std::int64_t bytes) override {
    use_cuda_device(pool_.device());
    void* memory = nullptr;
    // In the middle of a capture memory may be asked for, if that is what the thread says it wants.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    const cudaError_t code = make(&memory, static_cast<std::size_t>(bytes));
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    if (code == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    check_cuda(code, "cudaMalloc", "to get ", bytes, " bytes for ", name());
    return memory;
  }
  void release(void* memory) noexcept override { static_cast<void>(cudaFree(memory)); }
  Event record(StreamKey stream) override {
    return Event(std::make_shared<CudaEvent>(pool_, reinterpret_cast<cudaStream_t>(stream)));
  }
  std::string name() const override { return str(Device{DeviceType::cuda, pool_.device()}); }

 private:
  virtual cudaError_t make(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }

  CudaStreamPool& pool_;
};

// Host memory that the device copies from and to by itself.
class PinnedMemory final : public CudaMemory {
 public:
  using CudaMemory::CudaMemory;
  void release(void* memory) noexcept override { static_cast<void>(cudaFreeHost(memory)); }
  std::string name() const override { return "page-locked host memory"; }

 private:
  cudaError_t make(void** memory, std::size_t bytes) override { return cudaMallocHost(memory, bytes); }
};

// Pinned blocks belong to no stream: the host may always write to them.
constexpr StreamKey kHost = 0;

class CudaRuntime final : public Runtime, public CaptureMemory {
 public:
  explicit CudaRuntime(int device) : device_{DeviceType::cuda, device}, pool_(device) {
    static_cast<void>(pool_.moment());  // Measured now, and not in the middle of a step.
  }

  void* allocate(std::int64_t bytes) override { return blocks_.allocate(bytes, key(current())); }
  void release(void* memory, std::int64_t) noexcept override { blocks_.release(memory); }
  void note_use(const void* memory, Stream& stream) override {
    blocks_.note_use(memory, key(native(stream)));
  }
  void trim() noexcept override {
    blocks_.trim();
    pinned_blocks_.trim();
  }

  void fill_zero(void* memory, std::int64_t bytes) override {
    if (bytes == 0) return;
    check_cuda(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), current()), "cudaMemsetAsync",
               "to fill ", bytes, " bytes of ", device_);
  }
  // Of pageable memory CUDA has read all when it returns, of pinned memory nothing: so we wait.
  void copy_from_host(void* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
    wait(bytes);
  }
  void copy_to_host(void* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
    wait(bytes);
  }
  // Pinned memory that is given back meanwhile stays out of use until the copy is done.
  void copy_from_pinned(void* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
    pinned_blocks_.note_use(from, key(current()));
  }
  void copy_to_pinned(void* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
    pinned_blocks_.note_use(to, key(current()));
  }
  void copy_on_device(void* to, const void* from, std::int64_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  Storage allocate_pinned(std::int64_t bytes) override {
    auto* const memory = static_cast<std::byte*>(pinned_blocks_.allocate(bytes, kHost));
    return Storage(Device{}, bytes,
                   std::shared_ptr<std::byte>(memory, [this](std::byte* at) { pinned_blocks_.release(at); }));
  }

  std::unique_ptr<Stream> make_stream(std::string, Priority priority) override {
    return std::make_unique<CudaStream>(pool_, priority);
  }
  Stream& current_stream() override { return *slot().current; }

  void begin_capture() override {
    blocks_.begin_capture();
    pinned_blocks_.begin_capture();
    capturing_ = true;
  }
  Pools end_capture() override {
    capturing_ = false;
    return {blocks_.end_capture(), pinned_blocks_.end_capture()};
  }
  void release_pools(const Pools& pools) noexcept override {
    blocks_.release_pool(pools.device, key(current()));
    pinned_blocks_.release_pool(pools.pinned, key(current()));
  }
  bool is_capturing() const override { return capturing_; }

  MemoryStats memory_stats() const override { return blocks_.stats(); }
  void reset_peak() override { blocks_.reset_peak(); }

 private:
  // A thread's own stream on this device, and the one that is current. When the thread ends, its CUDA stream goes
  // back to the pool, with the work that is still under way.
  struct Slot {
    std::unique_ptr<CudaStream> own;
    Stream* current = nullptr;
  };

  Slot& slot() {
    thread_local std::vector<Slot> slots;
    const auto index = static_cast<std::size_t>(device_.index);
    if (index >= slots.size()) slots.resize(index + 1);
    Slot& slot = slots[index];
    if (slot.current == nullptr) {
      slot.own = std::make_unique<CudaStream>(pool_, Priority::normal);
      slot.current = slot.own.get();
    }
    return slot;
  }
  Stream* exchange_current_stream(Stream* stream) override { return std::exchange(slot().current, stream); }

  static StreamKey key(cudaStream_t stream) { return reinterpret_cast<StreamKey>(stream); }
  // The calling thread's stream, and this device made the thread's current one.
  cudaStream_t current() {
    use_cuda_device(device_.index);
    return native(*slot().current);
  }

  void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, current()), "cudaMemcpyAsync",
               "to copy ", bytes, " bytes on ", device_);
  }
  void wait(std::int64_t bytes) {
    if (bytes == 0) return;
    check_cuda(cudaStreamSynchronize(current()), "cudaStreamSynchronize", "behind a copy on ", device_);
  }

  const Device device_;
  CudaStreamPool pool_;
  CudaMemory memory_{pool_};
  PinnedMemory pinned_memory_{pool_};
  CachingAllocator blocks_{memory_}, pinned_blocks_{pinned_memory_};
  std::atomic<bool> capturing_ = false;
};

}  // namespace

Runtime& cuda_runtime(int index) {
  BRIGADE_CHECK(index >= 0 && index < cuda_device_count(), "runtime: no ", Device{DeviceType::cuda, index},
                "; ", cuda_status());
  // Never destroyed: tensors with static storage duration may outlive any other order of destruction.
  static auto& runtimes =
      *new std::vector<std::unique_ptr<CudaRuntime>>(static_cast<std::size_t>(cuda_device_count()));
  static auto& made = *new std::vector<std::once_flag>(static_cast<std::size_t>(cuda_device_count()));
  const auto at = static_cast<std::size_t>(index);
  std::call_once(made[at], [&] { runtimes[at] = std::make_unique<CudaRuntime>(index); });
  return *runtimes[at];
}

}  // namespace brigade
