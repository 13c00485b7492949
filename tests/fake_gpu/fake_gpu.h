// SPDX-License-Identifier: MIT
// tests/fake_gpu/fake_gpu.h - what the emulated libraries (cuBLASLt, cuDNN, NCCL, the device kernels) use of the
// emulated runtime, libcudart.so.13 of this folder: work for a stream is a closure that the stream's thread runs.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace fake_gpu {

/// Puts `work` behind everything that `stream` was given, or into the graph that is being captured from it. It runs on
/// the stream's thread, the only kind of thread that may touch device memory. It must not throw. Throws
/// std::runtime_error for the legacy null stream, on which this project must not rely, and for a stream that is gone.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// The device of a stream, and the calling thread's.
int device_of(cudaStream_t stream);
int current_device();

/// Whether this thread is one of a stream: emulated kernels may check that nobody calls them directly.
bool on_stream_thread();

/// Whether `pointer` lies in the memory of some device, and of which; -1: host memory.
int device_of_memory(const void* pointer);

/// A call failed: remembered for cudaGetLastError(), and returned.
cudaError_t error(cudaError_t code);

}  // namespace fake_gpu
