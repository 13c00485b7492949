// SPDX-License-Identifier: MIT
// dist/shm/host_memory.h - all memory that the ranks of one host share: one memfd, mapped whole by each of them.
//
//   ranks' blocks | two staging halves a rank | a ring for each pair of ranks | region of rank 0 | of rank 1 | …
//
// What a rank allocates in its region, the others see at the same offset of their mapping: nothing has to be announced
// or mapped when it comes and goes. Regions are address space only; pages exist where somebody has written.
// Read before: dist/shm/handover.h. Read next: dist/shm/meeting.h.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/storage.h"
#include "dist/shm/handover.h"
#include "dist/shm/progress_slot.h"

namespace brigade::dist {

/// What a rank brings to a gate of ShmTransport: written before it, read by the others behind it.
struct ShownData {
  static constexpr std::int64_t kElsewhere = -1, kStaged = -2;
  std::int64_t bytes;   ///< Of the collective, the same on all ranks.
  std::int64_t offset;  ///< Of its tensor in the rank's region; kElsewhere; kStaged: its copy is in staging.
};

/// What one rank shows the others. Fields that are polled by others lie on cache lines of their own.
struct alignas(64) RankBlock {
  alignas(64) std::atomic<std::uint64_t> came;  ///< Gates this rank has come to.
  std::atomic<int> core;                        ///< On which it came to the last one.
  alignas(64)
      std::atomic<std::uint32_t> bell;  ///< A futex: rung when something changes that this rank waits for.
  std::atomic<std::uint32_t> asleep;    ///< 1: ring the bell.
  alignas(64) ShownData shown[2];  ///< Taking turns: a rank behind a gate may write before others have read.
  alignas(64) ProgressSlot progress;
  cpu_set_t cores;  ///< On which its process may run.
  std::int64_t process;
};

/// Ends the meeting for all.
struct alignas(64) AbortNote {
  std::atomic<std::uint32_t> state;  ///< 0: none, 1: being written, 2: there.
  char reason[1020];
};

/// A queue of bytes from one rank to another.
struct alignas(64) ByteRing {
  static constexpr std::uint64_t kBytes = 64 * 1024;
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  alignas(64) std::byte bytes[kBytes];
};

class HostMemory : public std::enable_shared_from_this<HostMemory> {
 public:
  /// Of each staging half. What fits the second-level cache beside another rank's.
  static constexpr std::int64_t kStagingBytes = 256 * 1024;

  /// Memory for `ranks` ranks that are threads of this process. Throws CommError if the system has none.
  static std::shared_ptr<HostMemory> make(int ranks);
  /// For ranks that are processes: one makes the memory, hands its descriptor to the others, and all map it; nullptr if
  /// that cannot be. The descriptor is not needed afterwards.
  static Descriptor make_shared_memory(int ranks);
  static std::shared_ptr<HostMemory> map(const Descriptor& memory, int ranks);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  int ranks() const { return ranks_; }
  RankBlock& block(int rank) const;
  AbortNote& abort_note() const;
  std::byte* staging(int rank, int half) const;
  ByteRing& ring(int from, int to) const;

  /// `bytes` of zeroed memory in the region of `rank`, every page of it touched; it keeps this object alive. Ordinary
  /// memory if the region is full. Thread-safe.
  Storage allocate(int rank, std::int64_t bytes);
  /// Where [memory, memory + bytes) lies in the region of `rank`; -1 if it does not.
  std::int64_t offset_of(int rank, const std::byte* memory, std::int64_t bytes) const;
  std::byte* at(int rank, std::int64_t offset) const { return region(rank) + offset; }
  /// Maps the pages of another rank's allocation now, so that the first step does not fault them in one by one.
  void map_pages(int rank, std::int64_t offset, std::int64_t bytes) const noexcept;

 private:
  struct Used {
    std::int64_t offset, bytes;
  };
  struct Layout {  // Offsets of the parts.
    explicit Layout(std::int64_t ranks);
    std::int64_t blocks, staging, rings, regions;
  };
  HostMemory(std::byte* base, int ranks, std::int64_t bytes);
  std::byte* region(int rank) const;
  std::int64_t take(int rank, std::int64_t bytes, std::int64_t alignment);
  void give_back(int rank, std::int64_t offset) noexcept;

  const Layout layout_;
  std::byte* const base_;
  const int ranks_;
  const std::int64_t bytes_, region_bytes_;
  std::mutex mutex_;
  std::vector<std::vector<Used>> used_;  // By rank, in order of offsets.
};

}  // namespace brigade::dist
