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

  /// From here to end_capture() all memory comes from a pool of its own, and no event of the device is asked for: its
  /// streams are recorded instead of working (core/graph.h). Memory given back meanwhile that others use waits for the
  /// end; in the pool only the block's own stream gets it again.
  void begin_capture();
  /// The pool's name. Its blocks, those in use and all others, are kept as they are for the recording's sake.
  int end_capture();
  /// The recording is not repeated any more: what is not in use comes back when all that `stream` was given is done.
  void release_pool(int pool, StreamKey stream) noexcept;

  MemoryStats stats() const;
  void reset_peak();

 private:
  enum class State : std::uint8_t { used, waiting, kept, free };
  struct Block {
    std::int64_t size = 0;
    std::byte* segment = nullptr;  // Blocks of one segment lie side by side and may be joined.
    StreamKey stream = 0;
    int pool = 0;  // Of a capture; 0: none.
    State state = State::free;
    std::set<StreamKey> users{};  // Other streams that were given work on it.
  };
  using Blocks = std::map<std::byte*, Block>;
  // Of free blocks: the smallest that fits, of the lowest address. By pool and stream.
  using Free = std::set<std::tuple<int, StreamKey, std::int64_t, std::byte*>>;
  struct Waiting {
    Blocks::iterator block;
    std::vector<Event> events;
  };

  Free& free_of(const Block& block);
  void insert_free(Blocks::iterator block);
  void erase_free(Blocks::iterator block);
  void keep(Blocks::iterator block);
  void wait_for_users(Blocks::iterator block);
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
  int capturing_ = 0, pools_ = 0;           // The pool that memory comes from now, and how many there were.
  std::vector<std::byte*> behind_capture_;  // Given back during it, to wait for their users.
  MemoryStats stats_;
};

}  // namespace brigade
