// SPDX-License-Identifier: MIT
// core/runtime.h - what a device offers: memory, copies, streams. One implementation per device: core/runtime_cpu.cpp,
// core/cuda/runtime_cuda.cpp. Read before: core/device.h, core/stream.h. Read next: core/storage.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/device.h"
#include "core/stream.h"

namespace brigade {

class Storage;

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

enum class Priority : std::uint8_t { normal, high };

/// A device's memory and streams. Thread-safe.
///
/// Work on a device is ordered by streams. Every thread has one current stream a device, where kernels called on this
/// thread run, and where memory is filled and copied; StreamScope changes it. On the CPU that is the calling thread
/// itself: all below has happened when it returns.
class Runtime {
 public:
  virtual ~Runtime() = default;

  /// `bytes` of uninitialised memory aligned to kAlignment, from a cache of freed blocks, for work of the calling
  /// thread's current stream. Throws Error if none.
  virtual void* allocate(std::int64_t bytes) = 0;
  /// Returns a block to the cache; `bytes` as given to allocate(). It is handed out again to work behind what the
  /// block's own stream has been given until now, and not before other streams that were noted are done with it.
  virtual void release(void* memory, std::int64_t bytes) noexcept = 0;
  /// `stream` was given work on `memory` (anywhere in a block) that allocate() made for another one.
  virtual void note_use(const void* memory, Stream& stream) {
    static_cast<void>(memory), static_cast<void>(stream);
  }
  /// Gives cached blocks back to the system.
  virtual void trim() noexcept = 0;

  virtual void fill_zero(void* memory, std::int64_t bytes) = 0;
  /// Behind the current stream's work; `from` may be reused when it returns.
  virtual void copy_from_host(void* to, const void* from, std::int64_t bytes) = 0;
  /// Behind the current stream's work. Blocks until the bytes are here.
  virtual void copy_to_host(void* to, const void* from, std::int64_t bytes) = 0;
  /// The same three without waiting: host memory is pinned, and untouched until an event recorded behind is done.
  virtual void copy_from_pinned(void* to, const void* from, std::int64_t bytes) {
    copy_from_host(to, from, bytes);
  }
  virtual void copy_to_pinned(void* to, const void* from, std::int64_t bytes) {
    copy_to_host(to, from, bytes);
  }
  virtual void copy_on_device(void* to, const void* from, std::int64_t bytes) = 0;
  /// Host memory for such copies: page-locked where the device asks for it. A CPU Storage.
  virtual Storage allocate_pinned(std::int64_t bytes);

  virtual std::unique_ptr<Stream> make_stream(std::string name, Priority priority = Priority::normal) = 0;
  /// Of the calling thread.
  virtual Stream& current_stream() = 0;

  virtual MemoryStats memory_stats() const = 0;
  virtual void reset_peak() = 0;

 private:
  friend class StreamScope;
  virtual Stream* exchange_current_stream(Stream* stream) = 0;
};

/// Makes `stream`, one of `device`, the calling thread's current stream until the end of the scope.
class StreamScope {
 public:
  StreamScope(Device device, Stream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Runtime& runtime_;
  Stream* before_;
};

/// The runtime of `device`. Throws Error if the device is not compiled in or not present.
Runtime& runtime(Device device);
/// Of one type that can be used now: 1 for the CPU; of a type that is not compiled in, or whose driver is absent, 0.
int device_count(DeviceType type);
/// In words for users: the devices of a type, or why there is none and what would help.
std::string device_status(DeviceType type);
/// What the driver calls it: "NVIDIA H200"; "CPU". Throws Error if it is not there.
std::string device_name(Device device);
/// What tells a device from all others of the world: "GPU-1f2e3d4c-…"; empty for the CPU.
std::string device_uuid(Device device);

}  // namespace brigade
