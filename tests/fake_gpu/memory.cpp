// SPDX-License-Identifier: MIT
// tests/fake_gpu/memory.cpp - emulated device memory: one stretch of addresses a device, FAKE_GPU_MEMORY MiB (4096) of
// which can be allocated. Fresh memory is full of 0xff bytes, which are NaN as floats and -1 as integers: nobody can
// rely on zeros. Host threads cannot reach it: by a memory protection key where the processor has them; else, and
// unless FAKE_GPU_PROTECT=0, while no stream works, so that most such accesses of the host still end in SIGSEGV.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/fake_gpu/internal.h"

namespace fake_gpu {
namespace {

constexpr std::size_t kGranule = 512;  // As cudaMalloc aligns.

struct Arena {
  std::byte* begin = nullptr;
  std::size_t size = 0;
  int file = -1;
  std::map<std::size_t, std::size_t> blocks;  // Offset to size, of what is allocated.

  bool holds(const void* pointer) const {
    const auto* at = static_cast<const std::byte*>(pointer);
    return at >= begin && at < begin + size;
  }
};

struct Memory {
  std::mutex mutex;
  std::vector<Arena> arenas;
  std::map<const std::byte*, std::size_t> pinned, opened;  // `opened`: mapped from another process.
  int key = -1;                                            // Memory protection key.
  bool protect = false;                                    // Without keys: by mprotect.
  int working = 0;                                         // Threads between begin_ and end_device_work().
  std::mutex working_mutex;

  Memory() {
    const auto size = static_cast<std::size_t>(setting("FAKE_GPU_MEMORY", 4096)) << 20;
    protect = setting("FAKE_GPU_PROTECT", 1) != 0;
    if (protect) key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    for (int device = 0; device < device_count(); ++device) {
      Arena arena;
      arena.size = size;
      // A file, so that other processes can map it: cudaIpcOpenMemHandle.
      arena.file = memfd_create("emulated-gpu", MFD_CLOEXEC);
      if (arena.file < 0 || ftruncate(arena.file, static_cast<off_t>(size)) != 0) std::abort();
      const int access = protect && key < 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
      void* const begin = mmap(nullptr, size, access, MAP_SHARED | MAP_NORESERVE, arena.file, 0);
      if (begin == MAP_FAILED) std::abort();
      if (key >= 0) pkey_mprotect(begin, size, PROT_READ | PROT_WRITE, key);
      arena.begin = static_cast<std::byte*>(begin);
      arenas.push_back(std::move(arena));
    }
  }

  void set_access(int access) {
    for (const Arena& arena : arenas) mprotect(arena.begin, arena.size, access);
  }
};
Memory& memory() {
  static Memory& all = *new Memory;
  return all;
}

thread_local bool is_stream_thread = false;

const std::pair<const std::byte* const, std::size_t>* range_with(
    const std::map<const std::byte*, std::size_t>& ranges, const void* pointer) {
  const auto* const at = static_cast<const std::byte*>(pointer);
  auto found = ranges.upper_bound(at);
  if (found == ranges.begin()) return nullptr;
  --found;
  return at < found->first + found->second ? &*found : nullptr;
}

// Whether [pointer, pointer + bytes) lies in one allocation of a device.
bool is_device_range(const void* pointer, std::size_t bytes) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  if (const auto* const range = range_with(all.opened, pointer))
    return static_cast<const std::byte*>(pointer) + bytes <= range->first + range->second;
  for (const Arena& arena : all.arenas) {
    if (!arena.holds(pointer)) continue;
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(pointer) - arena.begin);
    auto block = arena.blocks.upper_bound(offset);
    if (block == arena.blocks.begin()) return false;
    --block;
    return offset + bytes <= block->first + block->second;
  }
  return false;
}

}  // namespace

void become_stream_thread() { is_stream_thread = true; }
bool on_stream_thread() { return is_stream_thread; }

void begin_device_work() {
  Memory& all = memory();
  if (all.key >= 0) pkey_set(all.key, 0);
  if (all.key >= 0 || !all.protect) return;
  std::lock_guard lock(all.working_mutex);
  if (all.working++ == 0) all.set_access(PROT_READ | PROT_WRITE);
}
void end_device_work() {
  Memory& all = memory();
  if (all.key >= 0) pkey_set(all.key, PKEY_DISABLE_ACCESS);
  if (all.key >= 0 || !all.protect) return;
  std::lock_guard lock(all.working_mutex);
  if (--all.working == 0) all.set_access(PROT_NONE);
}

int device_of_memory(const void* pointer) {
  Memory& all = memory();
  for (std::size_t device = 0; device < all.arenas.size(); ++device)
    if (all.arenas[device].holds(pointer)) return static_cast<int>(device);
  std::lock_guard lock(all.mutex);
  return range_with(all.opened, pointer) != nullptr ? 0 : -1;
}

bool is_pinned(const void* pointer) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  return range_with(all.pinned, pointer) != nullptr;
}

}  // namespace fake_gpu

using namespace fake_gpu;

namespace {

// What cudaIpcMemHandle_t carries.
struct Shared {
  pid_t process;
  int file;
  std::size_t offset, size;
};
static_assert(sizeof(Shared) <= sizeof(cudaIpcMemHandle_t));

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (forbidden_by_capture()) return error(cudaErrorStreamCaptureUnsupported);
  const std::size_t wanted = (bytes + kGranule - 1) / kGranule * kGranule;
  Memory& all = memory();
  {
    std::lock_guard lock(all.mutex);
    Arena& arena = all.arenas[static_cast<std::size_t>(current_device())];
    std::size_t at = 0;  // First fit.
    for (const auto& [offset, size] : arena.blocks) {
      if (offset - at >= wanted) break;
      at = offset + size;
    }
    if (at + wanted > arena.size) return error(cudaErrorMemoryAllocation);
    arena.blocks[at] = wanted;
    *pointer = arena.begin + at;
  }
  begin_device_work();
  std::memset(*pointer, 0xff, bytes);
  end_device_work();
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  if (forbidden_by_capture()) return error(cudaErrorStreamCaptureUnsupported);
  const int device = device_of_memory(pointer);
  if (device < 0) return error(cudaErrorInvalidValue);
  synchronize_device(device);  // As the real one does.
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  Arena& arena = all.arenas[static_cast<std::size_t>(device)];
  const auto block =
      arena.blocks.find(static_cast<std::size_t>(static_cast<std::byte*>(pointer) - arena.begin));
  if (block == arena.blocks.end()) return error(cudaErrorInvalidValue);
  fallocate(arena.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(block->first),
            static_cast<off_t>(block->second));
  arena.blocks.erase(block);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  const Arena& arena = all.arenas[static_cast<std::size_t>(current_device())];
  *free = *total = arena.size;
  for (const auto& [offset, size] : arena.blocks) *free -= size;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int) {
  if (forbidden_by_capture()) return error(cudaErrorStreamCaptureUnsupported);
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*pointer == nullptr) return error(cudaErrorMemoryAllocation);
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  all.pinned[static_cast<std::byte*>(*pointer)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  for (int device = 0; device < device_count(); ++device) synchronize_device(device);
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  if (all.pinned.erase(static_cast<std::byte*>(pointer)) == 0) return error(cudaErrorInvalidValue);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const bool to_device = device_of_memory(to) >= 0, from_device = device_of_memory(from) >= 0;
  if ((to_device && !is_device_range(to, bytes)) || (from_device && !is_device_range(from, bytes)))
    return error(cudaErrorInvalidValue);
  const bool as_told = kind == cudaMemcpyDefault ||
                       (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
                        from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
  if (!as_told) return error(cudaErrorInvalidValue);
  if ((!from_device && !is_pinned(from)) || (!to_device && !is_pinned(to))) {
    // A capture would read or write it in each replay, wherever it is by then: not done here.
    cudaStreamCaptureStatus status;
    cudaStreamIsCapturing(stream, &status);
    if (status != cudaStreamCaptureStatusNone) {
      stream->capture->broken = true;
      return error(cudaErrorStreamCaptureUnsupported);
    }
  }
  if (!from_device && !is_pinned(from)) {
    // Pageable memory is staged: the caller may write to it when this returns, and the copy is still to come.
    const auto* const bytes_of = static_cast<const std::byte*>(from);
    auto staged = std::make_shared<std::vector<std::byte>>(bytes_of, bytes_of + bytes);
    enqueue(stream, [=] { std::memcpy(to, staged->data(), bytes); });
  } else {
    enqueue(stream, [=] { std::memmove(to, from, bytes); });
  }
  if (!to_device && !is_pinned(to)) return cudaStreamSynchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!is_device_range(to, bytes)) return error(cudaErrorInvalidValue);
  enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  attributes->device = device_of_memory(pointer);
  attributes->type = attributes->device >= 0 ? cudaMemoryTypeDevice
                     : is_pinned(pointer)    ? cudaMemoryTypeHost
                                             : cudaMemoryTypeUnregistered;
  auto* const plain = const_cast<void*>(pointer);
  if (attributes->device >= 0) attributes->devicePointer = plain;
  if (attributes->device < 0) attributes->hostPointer = plain;
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  if (ipc() == 0) return error(cudaErrorNotSupported);
  const int device = device_of_memory(pointer);
  if (device < 0) return error(cudaErrorInvalidValue);
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  const Arena& arena = all.arenas[static_cast<std::size_t>(device)];
  auto block =
      arena.blocks.upper_bound(static_cast<std::size_t>(static_cast<std::byte*>(pointer) - arena.begin));
  if (block == arena.blocks.begin()) return error(cudaErrorInvalidValue);
  --block;  // The whole allocation, as the real one: its user needs the offset inside.
  const Shared shared{getpid(), arena.file, block->first, block->second};
  *handle = {};
  std::memcpy(handle, &shared, sizeof shared);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int) {
  Shared shared;
  std::memcpy(&shared, &handle, sizeof shared);
  // The real one cannot open memory of its own process.
  if (shared.process == getpid()) return error(cudaErrorDeviceUninitialized);
  // Mappings begin at pages, allocations need not.
  const std::size_t inside = shared.offset % 4096;
  std::byte* const mapped =
      map_of_process(shared.process, shared.file, shared.offset - inside, shared.size + inside);
  if (mapped == nullptr) return error(cudaErrorMapBufferObjectFailed);
  *pointer = mapped + inside;
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  all.opened[static_cast<std::byte*>(*pointer)] = shared.size;
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  for (int device = 0; device < device_count(); ++device) synchronize_device(device);
  Memory& all = memory();
  std::lock_guard lock(all.mutex);
  const auto range = all.opened.find(static_cast<std::byte*>(pointer));
  if (range == all.opened.end()) return error(cudaErrorInvalidValue);
  const std::size_t inside = reinterpret_cast<std::uintptr_t>(pointer) % 4096;
  munmap(static_cast<std::byte*>(pointer) - inside, range->second + inside);
  all.opened.erase(range);
  return cudaSuccess;
}
}
