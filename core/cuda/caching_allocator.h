// SPDX-License-Identifier: MIT
// core/cuda/caching_allocator.h - keeps a device's memory for reuse: asking the device for memory takes it a
// millisecond, and giving memory back makes it wait for all its work. No CUDA in here: the device is an interface, so
// that tests run it without one (tests/core/caching_allocator_test.cpp). The shape, pools by size with blocks that are
// split and joined again, follows the caching allocator of PyTorch (c10/cuda/CUDACachingAllocator.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/runtime.h"

namespace brigade {

/// A stream as the allocator knows it: a name that no other stream gets, ever.
using StreamKey = std::uintptr_t;

/// What the allocator needs of a device.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// nullptr if there is none left.
  virtual void* allocate(std::int64_t bytes) = 0;
  /// Memory on which no work is under way any more, or else it waits for it.
  virtual void release(void* memory) noexcept = 0;
  /// Done when all work that `stream` has been given until now is.
  virtual Event record(StreamKey stream) = 0;
  /// For messages: "cuda:0".
  virtual std::string name() const = 0;
};

/// Thread-safe. A block belongs to the stream it was allocated for. Given back, it serves that stream again at once,
/// because what comes runs behind what was; if other streams were noted (note_use), it waits until they have done what
/// they were given before. Nothing here waits for the device but an allocation that would fail otherwise, and trim().
class CachingAllocator {
 public:
  explicit CachingAllocator(DeviceMemory& device) : device_(device) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  void* allocate(std::int64_t bytes, StreamKey stream);
  void release(void* memory) noexcept;
  /// `stream` has been given work on the block around `memory`. Memory of others is none of our business.
  void note_use(const void* memory, StreamKey stream);
  /// Gives memory back to the device that is free as a whole segment.
  void trim() noexcept;

  MemoryStats stats() const;
  void reset_peak();

 private:
  enum class State : std::uint8_t { used, waiting, free };
  struct Block {
    std::int64_t size = 0;
    std::byte* segment = nullptr;  // Blocks of one segment lie side by side and may be joined.
    StreamKey stream = 0;
    State state = State::free;
    std::set<StreamKey> users{};  // Other streams that were given work on it.
  };
  using Blocks = std::map<std::byte*, Block>;
  // Of free blocks: the smallest that fits, of the lowest address.
  using Free = std::set<std::tuple<StreamKey, std::int64_t, std::byte*>>;
  struct Waiting {
    Blocks::iterator block;
    std::vector<Event> events;
  };

  Free& free_of(const Block& block);
  Blocks::iterator find_free(std::int64_t size, StreamKey stream);
  Blocks::iterator new_segment(std::int64_t size, StreamKey stream);
  void split(Blocks::iterator block, std::int64_t size);
  void make_free(Blocks::iterator block);
  void look_at_waiting();
  void wait_for_waiting();
  void trim_locked() noexcept;
  std::string out_of_memory(std::int64_t bytes) const;

  DeviceMemory& device_;
  mutable std::mutex mutex_;
  Blocks blocks_;                                // All, by address.
  std::map<std::byte*, std::int64_t> segments_;  // What the device gave.
  Free small_, large_;  // Segments of small blocks are apart, or they would cut up the large ones.
  std::list<Waiting> waiting_;
  MemoryStats stats_;
};

}  // namespace brigade
