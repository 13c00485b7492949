// SPDX-License-Identifier: MIT
// tests/fake_gpu/ipc.cpp - what processes share of emulated GPUs: events, and how the memory of another process is
// found. As in CUDA, a wait is for what had been recorded when it was called: who waits too early waits for nothing.
// FAKE_GPU_IPC=0 refuses handles, FAKE_GPU_IPC=-1 lets others open something else. Memory itself: memory.cpp.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <string>

#include "tests/fake_gpu/internal.h"

namespace fake_gpu {
namespace {

// What cudaIpcEventHandle_t carries.
struct SharedEvent {
  std::int64_t process;
  int file;
};
static_assert(sizeof(SharedEvent) <= sizeof(cudaIpcEventHandle_t));

std::shared_ptr<SharedRecords> records_at(std::byte* memory) {
  if (memory == nullptr) return nullptr;
  return {reinterpret_cast<SharedRecords*>(memory),
          [](SharedRecords* records) { munmap(records, sizeof(SharedRecords)); }};
}

}  // namespace

int ipc() { return static_cast<int>(setting("FAKE_GPU_IPC", 1)); }

std::byte* map_of_process(std::int64_t process, int file, std::size_t offset, std::size_t bytes) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return nullptr;
  const bool blind = ipc() < 0;
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, blind ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED,
           blind ? -1 : opened, blind ? 0 : static_cast<off_t>(offset));
  close(opened);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

// Streams come to their records in order, but an event may be recorded on several of them.
void SharedRecords::complete(std::uint32_t number) {
  for (std::uint32_t before = completed;
       before < number && !completed.compare_exchange_weak(before, number);) {
  }
  syscall(SYS_futex, &completed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedRecords::wait(std::uint32_t number) {
  for (std::uint32_t now = completed; now < number; now = completed)
    syscall(SYS_futex, &completed, FUTEX_WAIT, now, nullptr, nullptr, 0);
}

cudaError_t share(CUevent_st& event) {
  if (event.timed) return error(cudaErrorInvalidValue);  // CUDA demands cudaEventDisableTiming.
  event.file = memfd_create("emulated-gpu-event", MFD_CLOEXEC);
  if (event.file < 0 || ftruncate(event.file, sizeof(SharedRecords)) != 0)
    return error(cudaErrorMemoryAllocation);
  void* const mapped =
      mmap(nullptr, sizeof(SharedRecords), PROT_READ | PROT_WRITE, MAP_SHARED, event.file, 0);
  if (mapped == MAP_FAILED) return error(cudaErrorMemoryAllocation);
  event.shared = records_at(static_cast<std::byte*>(mapped));
  return cudaSuccess;
}

}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  if (ipc() == 0) return error(cudaErrorNotSupported);
  if (event->file < 0) return error(cudaErrorInvalidResourceHandle);
  const SharedEvent shared{getpid(), event->file};
  *handle = {};
  std::memcpy(handle, &shared, sizeof shared);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  SharedEvent shared;
  std::memcpy(&shared, &handle, sizeof shared);
  if (shared.process == getpid()) return error(cudaErrorDeviceUninitialized);
  auto records = records_at(map_of_process(shared.process, shared.file, 0, sizeof(SharedRecords)));
  if (!records) return error(cudaErrorMapBufferObjectFailed);
  *event = new CUevent_st;
  (*event)->timed = false;
  (*event)->shared = std::move(records);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) { return cudaSuccess; }
}
