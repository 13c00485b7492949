// SPDX-License-Identifier: MIT
// core/cuda/lent_memory.h - memory of a device that several ranks work on: the ranks of other processes by CUDA's IPC
// handles, those of this process by pointers. Read before: core/cuda/stream_cuda.h. User: dist/ipc/ipc_carrier.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace brigade {

/// Events that go with such memory: two, which take turns, so that one may be recorded again while the waits for the
/// other are still being enqueued.
inline constexpr int kLentEvents = 2;

/// Memory that this rank lends. From a cudaMalloc of its own: a handle opens the whole allocation that a pointer lies
/// in, and a block of the caching allocator is a piece of one.
///
/// Others must have given it back before it is freed. Where nobody can know that, because ranks do not talk to each
/// other any more, it is left to the end of the process: the destructor frees nothing.
class LentMemory {
 public:
  /// Throws Error where the device or the system cannot share.
  LentMemory(int device, std::int64_t bytes);
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  std::byte* data() const { return data_; }
  /// What others need to borrow it, as bytes.
  std::string handles() const;
  void record(int event, cudaStream_t stream);
  /// Frees the memory. Nobody uses it any more.
  void free();

 private:
  friend class BorrowedMemory;
  struct Handles;

  const int device_;
  std::byte* data_ = nullptr;
  std::array<cudaEvent_t, kLentEvents> events_{};
};

/// The same memory as another rank sees it, for work of `device`.
class BorrowedMemory {
 public:
  /// `handles`: LentMemory::handles(). `own_process`: whether its owner is a thread of this one, whose pointers can be
  /// used as they are, and cannot be opened. Throws Error where the device cannot reach it.
  BorrowedMemory(int device, const std::string& handles, bool own_process);
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;

  std::byte* data() const { return data_; }
  /// Work that `stream` is given from now on comes behind what the owner had recorded last when this is called. So the
  /// ranks must have met in between: a wait for an event that is yet to be recorded is none.
  void wait(int event, cudaStream_t stream);
  /// Closes what was opened. This rank's work on it must be done. Not done by the destructor: see LentMemory.
  void give_back();

 private:
  const int device_;
  const bool opened_;
  std::byte* data_ = nullptr;
  std::array<cudaEvent_t, kLentEvents> events_{};
};

}  // namespace brigade
