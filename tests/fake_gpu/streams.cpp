// SPDX-License-Identifier: MIT
// tests/fake_gpu/streams.cpp - emulated streams and events. A stream is a thread with a queue of closures that lives as
// long as the process. FAKE_GPU_JITTER=seed delays each closure by a random moment, another one for each seed: where a
// wait for an event is missing, results then come out wrong.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/fake_gpu/internal.h"

namespace fake_gpu {
namespace {

struct Streams {
  std::mutex mutex;
  std::vector<CUstream_st*> all;  // Never destroyed: their threads run until the process ends.
  std::set<CUstream_st*> alive;   // Not yet given to cudaStreamDestroy.
};
Streams& streams() {
  static Streams& all = *new Streams;
  return all;
}

thread_local int chosen_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::int64_t own_waits[2] = {};
std::atomic<std::int64_t> all_waits[2] = {};

CUstream_st& checked(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    throw std::runtime_error("emulated GPU: the null stream was used; every call names a stream of its own");
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  if (known.alive.count(stream) == 0) throw std::runtime_error("emulated GPU: this stream does not exist");
  return *stream;
}

bool is_alive(cudaStream_t stream) {
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  return known.alive.count(stream) != 0;
}

}  // namespace

cudaError_t error(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

int current_device() { return chosen_device; }
int device_of(cudaStream_t stream) { return checked(stream).device; }
void enqueue(cudaStream_t stream, std::function<void()> work) { checked(stream).push(std::move(work)); }

void Record::complete() {
  std::lock_guard lock(mutex);
  done = true;
  time = Clock::now();
  changed.notify_all();
}
void Record::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return done; });
}
bool Record::query() {
  std::lock_guard lock(mutex);
  return done;
}

void synchronize_device(int device) {
  Streams& known = streams();
  std::vector<CUstream_st*> all;
  {
    std::lock_guard lock(known.mutex);
    all = known.all;
  }
  for (CUstream_st* stream : all)
    if (stream->device == device) stream->synchronize();
}

bool capturing_anywhere() {
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  return std::any_of(known.alive.begin(), known.alive.end(), [](CUstream_st* stream) {
    std::lock_guard inner(stream->mutex);
    return stream->capture != nullptr;
  });
}

void count(HostWait kind) {
  ++own_waits[static_cast<int>(kind)];
  ++all_waits[static_cast<int>(kind)];
}

}  // namespace fake_gpu

using namespace fake_gpu;

void CUstream_st::push(std::function<void()> work) {
  std::lock_guard lock(mutex);
  if (capture) {
    std::lock_guard inner(capture->mutex);
    capture->nodes.push_back(std::move(work));
    if (capture->origin != this) capture->unjoined.insert(this);
    return;
  }
  queue.push_back(std::move(work));
  changed.notify_all();
}

bool CUstream_st::idle() {
  std::lock_guard lock(mutex);
  return queue.empty() && !running;
}

void CUstream_st::synchronize() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return queue.empty() && !running; });
}

void CUstream_st::run(std::uint64_t number) {
  become_stream_thread();
  const std::int64_t seed = setting("FAKE_GPU_JITTER", -1);
  std::minstd_rand random(static_cast<unsigned>(seed + 1) * 1000003u + static_cast<unsigned>(number));
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return !queue.empty(); });
    std::function<void()> work = std::move(queue.front());
    queue.pop_front();
    running = true;
    lock.unlock();
    if (seed >= 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 4 == 0 ? random() % 500 : 0));
    begin_device_work();
    work();
    end_device_work();
    work = nullptr;  // What it captured goes before anybody hears that it is done.
    lock.lock();
    running = false;
    changed.notify_all();
  }
}

std::shared_ptr<Record> CUevent_st::latest() {
  std::lock_guard lock(mutex);
  return record;
}

extern "C" {

/// For tests: how often the host has waited for a stream or a whole device (kind 0), for an event (kind 1).
std::int64_t counted_host_waits(int kind, int of_all_threads) {
  return of_all_threads != 0 ? all_waits[kind].load() : own_waits[kind];
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return error(cudaErrorInvalidDevice);
  chosen_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaDeviceSynchronize() {
  count(HostWait::stream);
  if (capturing_anywhere()) return error(cudaErrorStreamCaptureUnsupported);
  synchronize_device(chosen_device);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  if (flags != cudaStreamNonBlocking)
    return error(cudaErrorInvalidValue);  // Others wait for the null stream.
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  auto* made = new CUstream_st;
  made->device = chosen_device;
  made->priority = priority;
  known.all.push_back(made);
  known.alive.insert(made);
  std::thread([made, number = known.all.size()] { made->run(number); }).detach();
  *stream = made;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  return known.alive.erase(stream) == 1 ? cudaSuccess : error(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!is_alive(stream)) return error(cudaErrorInvalidResourceHandle);
  if (forbidden_by_capture()) return error(cudaErrorStreamCaptureUnsupported);
  count(HostWait::stream);
  stream->synchronize();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!is_alive(stream)) return error(cudaErrorInvalidResourceHandle);
  if (forbidden_by_capture()) return error(cudaErrorStreamCaptureUnsupported);
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  if (!is_alive(stream)) return error(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (!is_alive(stream)) return error(cudaErrorInvalidResourceHandle);
  stream->push([=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return (flags & cudaEventInterprocess) != 0 ? share(**event) : cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event->file >= 0) close(event->file);
  delete event;  // Those who wait hold the record.
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!is_alive(stream)) return error(cudaErrorInvalidResourceHandle);
  auto record = std::make_shared<Record>();
  record->stream = stream;
  {
    std::lock_guard lock(stream->mutex);
    record->graph = stream->capture;
  }
  if (event->shared) {
    if (record->graph) return error(cudaErrorStreamCaptureUnsupported);
    const std::uint32_t number = ++event->shared->recorded;  // From now on others wait for it.
    stream->push([shared = event->shared, number] { shared->complete(number); });
  }
  {
    std::lock_guard lock(event->mutex);
    event->record = record;
  }
  if (!record->graph) stream->push([record] { record->complete(); });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  if (!is_alive(stream)) return error(cudaErrorInvalidResourceHandle);
  if (event->shared) {  // For what has been recorded by now, in whatever process: nothing, perhaps.
    stream->push([shared = event->shared, number = event->shared->recorded.load()] {
      end_device_work();
      shared->wait(number);
      begin_device_work();
    });
    return cudaSuccess;
  }
  const std::shared_ptr<Record> record = event->latest();
  if (!record) return cudaSuccess;
  if (!record->graph) {
    {
      std::lock_guard lock(stream->mutex);
      if (stream->capture) {
        stream->capture->broken = true;  // A captured stream may not depend on work outside, done or not.
        return error(cudaErrorStreamCaptureIsolation);
      }
    }
    stream->push([record] {
      end_device_work();  // Who waits does not work: the host's mistakes are found meanwhile.
      record->wait();
      begin_device_work();
    });
    return cudaSuccess;
  }
  // A wait for captured work draws the stream into the capture; the origin's wait brings a stream back.
  std::lock_guard lock(stream->mutex);
  if (stream->capture && stream->capture != record->graph) return error(cudaErrorStreamCaptureMerge);
  std::lock_guard inner(record->graph->mutex);
  if (record->graph->ended) return error(cudaErrorCapturedEvent);
  stream->capture = record->graph;
  if (stream == record->graph->origin)
    record->graph->unjoined.erase(record->stream);
  else
    record->graph->joined.insert(stream), record->graph->unjoined.insert(stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::shared_ptr<Record> record = event->latest();
  if (record && record->graph) {
    record->graph->broken = true;
    return error(cudaErrorCapturedEvent);
  }
  if (forbidden_by_capture()) return error(cudaErrorStreamCaptureUnsupported);
  return !record || record->query() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::shared_ptr<Record> record = event->latest();
  if (record && record->graph) {
    record->graph->broken = true;
    return error(cudaErrorCapturedEvent);
  }
  if (forbidden_by_capture()) return error(cudaErrorStreamCaptureUnsupported);
  count(HostWait::event);
  if (record) record->wait();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const std::shared_ptr<Record> from = start->latest(), to = end->latest();
  if (!from || !to || !start->timed || !end->timed) return error(cudaErrorInvalidResourceHandle);
  if (!from->query() || !to->query()) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return cudaSuccess;
}
}
