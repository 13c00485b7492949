// SPDX-License-Identifier: MIT
// core/runtime_cpu.cpp - the CPU's runtime: a caching allocator, memcpy, worker streams.
// Why a cache: the first touch of a 4 KiB page costs over a microsecond, so a training step must never give
// memory back to the system and fetch it again. Small blocks are kept by size class, large ones in core/heap.h.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/heap.h"
#include "core/runtime.h"
#include "core/storage.h"

namespace brigade {
namespace {

// From here on blocks come from the heap: activations of all layers then share one memory, whatever their sizes. A
// multiple of Heap::kPage.
constexpr std::int64_t kLarge = std::int64_t{256} << 10;

// What a block of `bytes` takes. Large: whole pages. Small: size classes, four steps per power of two, so that at most
// a fifth of a block is unused.
std::int64_t block_size(std::int64_t bytes) {
  const std::int64_t wanted = aligned(std::max(bytes, kAlignment));
  const std::int64_t step =
      wanted >= kLarge
          ? Heap::kPage
          : std::max(kAlignment,
                     static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(wanted))) / 4);
  return (wanted + step - 1) / step * step;
}

// A block that nobody uses: a list that lies in the blocks themselves needs no memory when one is released.
struct FreeBlock {
  FreeBlock* next;
};

class CpuRuntime final : public Runtime {
 public:
  void* allocate(std::int64_t bytes) override {
    BRIGADE_CHECK(bytes >= 0 && bytes < std::int64_t{1} << 48, "allocate: cannot hold ", bytes, " bytes");
    const std::int64_t size = block_size(bytes);
    std::lock_guard lock(mutex_);
    void* const memory = size >= kLarge ? heap_.allocate(size) : allocate_small(size);
    BRIGADE_CHECK(memory != nullptr, "allocate: the system has no ", size, " bytes left; in use ",
                  stats_.in_use_bytes);
    stats_.in_use_bytes += size;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
    return memory;
  }

  void release(void* memory, std::int64_t bytes) noexcept override {
    const std::int64_t size = block_size(bytes);
    std::lock_guard lock(mutex_);
    stats_.in_use_bytes -= size;
    if (size >= kLarge) return heap_.release(memory, size);
    auto& first = free_.find(size)->second;  // There since the block was allocated.
    static_cast<FreeBlock*>(memory)->next = first;
    first = static_cast<FreeBlock*>(memory);
    stats_.cached_bytes += size;
  }

  void trim() noexcept override {
    std::lock_guard lock(mutex_);
    heap_.trim();
    for (auto& [size, first] : free_)
      while (first != nullptr) std::free(std::exchange(first, first->next));
    stats_.cached_bytes = 0;
  }

  void fill_zero(void* memory, std::int64_t bytes) override {
    if (bytes > 0) std::memset(memory, 0, static_cast<std::size_t>(bytes));
  }
  void copy_from_host(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void copy_to_host(void* to, const void* from, std::int64_t bytes) override {
    copy_from_host(to, from, bytes);
  }
  void copy_on_device(void* to, const void* from, std::int64_t bytes) override {
    copy_from_host(to, from, bytes);
  }

  std::unique_ptr<Stream> make_stream(std::string name, Priority) override {
    return make_worker_stream(std::move(name));
  }
  Stream& current_stream() override { return *caller_; }

  MemoryStats memory_stats() const override {
    std::lock_guard lock(mutex_);
    MemoryStats stats = stats_;
    stats.cached_bytes += heap_.cached_bytes();
    stats.system_allocations += heap_.fresh_blocks();
    return stats;
  }
  void reset_peak() override {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.in_use_bytes;
  }

 private:
  // Kernels run where they are called, whatever stream the thread thinks it is on.
  Stream* exchange_current_stream(Stream*) override { return nullptr; }

  void* allocate_small(std::int64_t size) {
    FreeBlock*& first = free_[size];
    if (first == nullptr) {
      ++stats_.system_allocations;
      return std::aligned_alloc(static_cast<std::size_t>(kAlignment), static_cast<std::size_t>(size));
    }
    stats_.cached_bytes -= size;
    return std::exchange(first, first->next);
  }

  mutable std::mutex mutex_;
  std::unordered_map<std::int64_t, FreeBlock*> free_;  // Small, by size class.
  Heap heap_;
  MemoryStats stats_;  // Of the heap only what is in use.
  const std::unique_ptr<Stream> caller_ = make_caller_stream();
};

}  // namespace

Storage Runtime::allocate_pinned(std::int64_t bytes) { return Storage(Device{}, bytes); }

StreamScope::StreamScope(Device device, Stream& stream)
    : runtime_(runtime(device)), before_(runtime_.exchange_current_stream(&stream)) {}

StreamScope::~StreamScope() { runtime_.exchange_current_stream(before_); }

Runtime& cpu_runtime() {
  // Never destroyed: tensors with static storage duration may outlive any other order of destruction.
  static CpuRuntime& runtime = *new CpuRuntime;
  return runtime;
}

}  // namespace brigade
