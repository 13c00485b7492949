// SPDX-License-Identifier: MIT
// core/runtime_cpu.cpp - the CPU's runtime: a caching allocator over aligned_alloc, memcpy, worker streams.
// Why a cache: the first touch of a 4 KiB page costs over a microsecond, so a training step must never give
// memory back to the system and fetch it again.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/runtime.h"

namespace brigade {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

// Size classes: four steps per power of two, so that at most a fifth of a block is unused.
std::int64_t size_class(std::int64_t bytes) {
  const std::int64_t wanted = aligned(std::max(bytes, kAlignment));
  const std::int64_t step = std::max<std::int64_t>(
      kAlignment, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(wanted))) / 4);
  return (wanted + step - 1) / step * step;
}

class CpuRuntime final : public Runtime {
 public:
  void* allocate(std::int64_t bytes) override {
    BRIGADE_CHECK(bytes >= 0 && bytes < std::int64_t{1} << 48, "allocate: cannot hold ", bytes, " bytes");
    const std::int64_t size = size_class(bytes);
    std::lock_guard lock(mutex_);
    auto& blocks = free_[size];
    void* memory = nullptr;
    if (!blocks.empty()) {
      memory = blocks.back();
      blocks.pop_back();
      stats_.cached_bytes -= size;
    } else {
      memory = from_system(size);
    }
    stats_.in_use_bytes += size;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.in_use_bytes);
    return memory;
  }

  void release(void* memory, std::int64_t bytes) noexcept override {
    const std::int64_t size = size_class(bytes);
    std::lock_guard lock(mutex_);
    free_[size].push_back(memory);
    stats_.in_use_bytes -= size;
    stats_.cached_bytes += size;
  }

  void trim() noexcept override {
    std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : free_) {
      for (void* memory : blocks) std::free(memory);
      blocks.clear();
    }
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

  std::unique_ptr<Stream> make_stream(std::string name) override {
    return make_worker_stream(std::move(name));
  }

  MemoryStats memory_stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() override {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.in_use_bytes;
  }

 private:
  void* from_system(std::int64_t size) {
    // Large blocks on huge-page boundaries: 512 times fewer first touches.
    const bool large = size >= kHugePage;
    const std::int64_t alignment = large ? kHugePage : kAlignment;
    const auto padded = static_cast<std::size_t>((size + alignment - 1) / alignment * alignment);
    void* memory = std::aligned_alloc(static_cast<std::size_t>(alignment), padded);
    BRIGADE_CHECK(memory != nullptr, "allocate: the system has no ", size, " bytes left; in use ",
                  stats_.in_use_bytes);
    if (large) static_cast<void>(madvise(memory, padded, MADV_HUGEPAGE));  // A hint: refusal is harmless.
    ++stats_.system_allocations;
    return memory;
  }

  mutable std::mutex mutex_;
  std::unordered_map<std::int64_t, std::vector<void*>> free_;  // By size class.
  MemoryStats stats_;
};

}  // namespace

Runtime& cpu_runtime() {
  // Never destroyed: tensors with static storage duration may outlive any other order of destruction.
  static CpuRuntime& runtime = *new CpuRuntime;
  return runtime;
}

}  // namespace brigade
