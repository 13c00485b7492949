// SPDX-License-Identifier: MIT
// core/runtime.h - what a device offers: memory, copies, streams. One implementation per device; the CPU's is
// in core/runtime_cpu.cpp. Read before: core/device.h. Read next: core/storage.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/device.h"
#include "core/stream.h"

namespace brigade {

/// Every allocation starts on a cache line, so that vector loads and peers' slices never straddle one.
inline constexpr std::int64_t kAlignment = 64;

/// `bytes` rounded up to a multiple of kAlignment.
constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

struct MemoryStats {
  std::int64_t in_use_bytes = 0;        ///< Handed out now.
  std::int64_t peak_bytes = 0;          ///< Largest in_use_bytes since reset_peak().
  std::int64_t cached_bytes = 0;        ///< Free, kept for reuse.
  std::int64_t system_allocations = 0;  ///< Calls to the system: settles within the first training steps.
};

/// A device's memory and streams. Thread-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;

  /// `bytes` of uninitialised memory aligned to kAlignment, from a cache of
  /// freed blocks. Throws Error if none.
  virtual void* allocate(std::int64_t bytes) = 0;
  /// Returns a block to the cache; `bytes` as given to allocate().
  virtual void release(void* memory, std::int64_t bytes) noexcept = 0;
  /// Gives cached blocks back to the system.
  virtual void trim() noexcept = 0;

  virtual void fill_zero(void* memory, std::int64_t bytes) = 0;
  virtual void copy_from_host(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::int64_t bytes) = 0;

  virtual std::unique_ptr<Stream> make_stream(std::string name) = 0;

  virtual MemoryStats memory_stats() const = 0;
  virtual void reset_peak() = 0;
};

/// The runtime of `device`. Throws Error if the device is not compiled in or not present.
Runtime& runtime(Device device);

}  // namespace brigade
