// SPDX-License-Identifier: MIT
// tests/fake_gpu/internal.h - what the files of the emulated runtime share. Streams: streams.cpp; memory: memory.cpp;
// graphs: graphs.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/fake_gpu/fake_gpu.h"

namespace fake_gpu {

using Clock = std::chrono::steady_clock;

/// An integer from the environment.
std::int64_t setting(const char* name, std::int64_t otherwise);
int device_count();

/// A recording under capture: closures in the order of submission, which is an order that all events allow. A replay
/// runs them one after another on the stream of the launch.
struct Graph {
  std::mutex mutex;
  std::vector<std::function<void()>> nodes;
  CUstream_st* origin = nullptr;
  std::set<CUstream_st*> joined;    // Other streams that were drawn in.
  std::set<CUstream_st*> unjoined;  // Given work that the origin has not yet waited for.
  bool broken = false;              // Something was called that a capture forbids.
  bool ended = false;
  std::thread::id thread;                                    // Of cudaStreamBeginCapture…
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;  // … and what it asked for.
};

/// One call of cudaEventRecord.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Clock::time_point time;
  std::shared_ptr<Graph> graph;  // Recorded under capture: never done, orders the graph only.
  CUstream_st* stream = nullptr;

  void complete();
  void wait();
  bool query();
};

/// How often an event that processes share was recorded, and how many of these records the streams have come to. In
/// memory that all of them map (ipc.cpp).
struct SharedRecords {
  std::atomic<std::uint32_t> recorded, completed;

  void complete(std::uint32_t number);
  void wait(std::uint32_t number);
};

/// Device memory is within reach between these two calls only: of the calling thread where the processor has memory
/// protection keys, else of all threads.
void begin_device_work();
void end_device_work();
/// Marks the calling thread as one of a stream.
void become_stream_thread();

/// Whether memory is page-locked, so that copies need not wait for it.
bool is_pinned(const void* memory);

/// FAKE_GPU_IPC: 1; 0, nothing can be handed to other processes; -1, what they open is not what was handed to them.
int ipc();
/// Maps `file` of process `process`, or other memory where ipc() is -1; nullptr if that cannot be.
std::byte* map_of_process(std::int64_t process, int file, std::size_t offset, std::size_t bytes);
/// Makes `event` one that other processes can open.
cudaError_t share(CUevent_st& event);

void synchronize_device(int device);
/// Whether a capture forbids the calling thread what waits or allocates; that ends the capture in failure.
bool forbidden_by_capture();
/// Whether any stream of a device is capturing.
bool capturing_anywhere();

/// The host waits for a device: counted, for tests, by thread and for the process.
enum class HostWait : std::uint8_t { stream, event };
void count(HostWait kind);

}  // namespace fake_gpu

struct CUstream_st {
  int device = 0;
  int priority = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool running = false;
  std::shared_ptr<fake_gpu::Graph> capture;  // Set: work goes there.

  void push(std::function<void()> work);
  bool idle();
  void synchronize();
  [[noreturn]] void run(std::uint64_t number);
};

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<fake_gpu::Record> record;  // The latest; none: done.
  bool timed = true;
  int file = -1;  // What the next one lies in, for other processes to open; -1 where it was opened.
  std::shared_ptr<fake_gpu::SharedRecords> shared;  // Of cudaEventInterprocess.

  std::shared_ptr<fake_gpu::Record> latest();
};
