// SPDX-License-Identifier: MIT
// core/heap.h - large blocks of memory, cut out of long stretches of addresses and joined with their neighbours when
// they are free again: what a step frees in many small blocks serves it as one large block later. (Best fit with
// merging; Knuth, "The Art of Computer Programming" 1, section 2.5.) Used by core/runtime_cpu.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace brigade {

/// Not thread-safe. Which block comes next depends on sizes and order of calls only.
class Heap {
 public:
  static constexpr std::int64_t kPage = 4096;

  Heap() = default;
  ~Heap();  ///< Blocks still out become invalid.
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// `bytes` (a positive multiple of kPage) of uninitialised memory that begins at a page; nullptr if the system has
  /// none left.
  void* allocate(std::int64_t bytes);
  /// Takes a block back; `bytes` as given to allocate().
  void release(void* memory, std::int64_t bytes) noexcept;
  /// Gives the memory of free blocks back to the system.
  void trim();

  /// In free blocks, with memory behind them.
  std::int64_t cached_bytes() const { return cached_; }
  /// Blocks handed out with pages that nobody had touched, or that trim() gave back.
  std::int64_t fresh_blocks() const { return fresh_; }

 private:
  // Addresses of which the first `used` bytes have been cut into blocks; pages get memory at their first touch.
  struct Stretch {
    std::byte* begin;
    std::int64_t size, used;
    void* mapping;  // What the system gave, which begins a little earlier and ends a little later.
    std::size_t mapped;
  };
  struct Free {
    std::int64_t size;
    std::int64_t cached;  // Bytes of it that have memory.
  };
  using FreeBlocks = std::map<std::byte*, Free>;

  bool grow(std::int64_t bytes);
  bool map_stretch(std::int64_t size);
  void add(std::byte* memory, Free block) noexcept;
  Free remove(FreeBlocks::iterator at) noexcept;

  using BySize = std::set<std::pair<std::int64_t, std::byte*>>;
  // A free block's places in free_ and by_size_, filled or not.
  struct Nodes {
    FreeBlocks::node_type in_free;
    BySize::node_type in_size;
  };
  void reserve_nodes(std::size_t count);

  std::vector<Stretch> stretches_;
  FreeBlocks free_;  // No two of them touch.
  BySize by_size_;
  // At least one for each block that is out: whoever frees memory because there is none left must not need any.
  std::vector<Nodes> nodes_;
  std::size_t out_ = 0;
  std::int64_t cached_ = 0, fresh_ = 0;
};

}  // namespace brigade
