// SPDX-License-Identifier: MIT
// core/cuda/lent_memory.cpp - CUDA's IPC calls.
#include "core/cuda/lent_memory.h"

#include <cstring>

#include "core/cuda/check_cuda.h"
#include "core/cuda/devices.h"
#include "core/device.h"

namespace brigade {

// Travels as bytes. Pointers are for ranks of the same process, handles for all others.
struct LentMemory::Handles {
  int device;
  std::byte* data;
  std::array<cudaEvent_t, kLentEvents> events;
  cudaIpcMemHandle_t memory_handle;
  std::array<cudaIpcEventHandle_t, kLentEvents> event_handles;
};

LentMemory::LentMemory(int device, std::int64_t bytes) : device_(device) {
  use_cuda_device(device_);
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc", "to get ", bytes,
             " bytes of ", Device{DeviceType::cuda, device_}, " for the ranks that share it");
  data_ = static_cast<std::byte*>(memory);
  for (cudaEvent_t& event : events_)
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess),
               "cudaEventCreateWithFlags", "to make an event for other processes");
}

std::string LentMemory::handles() const {
  use_cuda_device(device_);
  Handles handles{};
  handles.device = device_;
  handles.data = data_;
  handles.events = events_;
  check_cuda(cudaIpcGetMemHandle(&handles.memory_handle, data_), "cudaIpcGetMemHandle", "to lend memory of ",
             Device{DeviceType::cuda, device_});
  for (std::size_t k = 0; k < events_.size(); ++k)
    check_cuda(cudaIpcGetEventHandle(&handles.event_handles[k], events_[k]), "cudaIpcGetEventHandle",
               "to lend it");
  return {reinterpret_cast<const char*>(&handles), sizeof handles};
}

void LentMemory::record(int event, cudaStream_t stream) {
  check_cuda(cudaEventRecord(events_[static_cast<std::size_t>(event)], stream), "cudaEventRecord",
             "for ranks that share memory of ", Device{DeviceType::cuda, device_});
}

void LentMemory::free() {
  use_cuda_device(device_);
  for (const cudaEvent_t event : events_) check_cuda(cudaEventDestroy(event), "cudaEventDestroy", "of ranks");
  check_cuda(cudaFree(data_), "cudaFree", "of memory that ranks have shared");
}

BorrowedMemory::BorrowedMemory(int device, const std::string& handles, bool own_process)
    : device_(device), opened_(!own_process) {
  LentMemory::Handles from{};
  BRIGADE_CHECK(handles.size() == sizeof from, "borrowed memory: needs ", sizeof from,
                " bytes of handles; got ", handles.size());
  std::memcpy(&from, handles.data(), sizeof from);
  use_cuda_device(device_);
  if (opened_) {
    void* memory = nullptr;
    // Of another device this makes a peer, or fails.
    check_cuda(cudaIpcOpenMemHandle(&memory, from.memory_handle, cudaIpcMemLazyEnablePeerAccess),
               "cudaIpcOpenMemHandle", "to borrow memory for ", Device{DeviceType::cuda, device_});
    data_ = static_cast<std::byte*>(memory);
    for (std::size_t k = 0; k < events_.size(); ++k)
      check_cuda(cudaIpcOpenEventHandle(&events_[k], from.event_handles[k]), "cudaIpcOpenEventHandle",
                 "to borrow it");
    return;
  }
  data_ = from.data;
  events_ = from.events;
  if (from.device == device_) return;
  int reachable = 0;
  check_cuda(cudaDeviceCanAccessPeer(&reachable, device_, from.device), "cudaDeviceCanAccessPeer",
             "to borrow memory");
  BRIGADE_CHECK(reachable != 0, "borrowed memory: ", Device{DeviceType::cuda, device_},
                " cannot reach the memory of ", Device{DeviceType::cuda, from.device});
  const cudaError_t code = cudaDeviceEnablePeerAccess(from.device, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled)
    static_cast<void>(cudaGetLastError());
  else
    check_cuda(code, "cudaDeviceEnablePeerAccess", "to borrow memory");
}

void BorrowedMemory::wait(int event, cudaStream_t stream) {
  check_cuda(cudaStreamWaitEvent(stream, events_[static_cast<std::size_t>(event)], 0), "cudaStreamWaitEvent",
             "for a rank that shares memory with ", Device{DeviceType::cuda, device_});
}

void BorrowedMemory::give_back() {
  if (!opened_) return;
  use_cuda_device(device_);
  for (const cudaEvent_t event : events_) check_cuda(cudaEventDestroy(event), "cudaEventDestroy", "of ranks");
  check_cuda(cudaIpcCloseMemHandle(data_), "cudaIpcCloseMemHandle", "to give memory back");
}

}  // namespace brigade
