// SPDX-License-Identifier: MIT
// tests/fake_gpu/graphs.cpp - emulated capture and replay of a stream's work.
#include <utility>

#include "tests/fake_gpu/internal.h"

using namespace fake_gpu;

namespace {

// Captures that have begun and not ended.
struct Captures {
  std::mutex mutex;
  std::set<std::shared_ptr<Graph>> all;
};
Captures& captures() {
  static Captures& captures = *new Captures;
  return captures;
}

thread_local cudaStreamCaptureMode own_mode = cudaStreamCaptureModeGlobal;

}  // namespace

// The rules are those of cudaThreadExchangeStreamCaptureMode's documentation.
bool fake_gpu::forbidden_by_capture() {
  if (own_mode == cudaStreamCaptureModeRelaxed) return false;
  const std::lock_guard lock(captures().mutex);
  bool forbidden = false;
  for (const auto& graph : captures().all) {
    const bool own =
        graph->thread == std::this_thread::get_id() && graph->mode != cudaStreamCaptureModeRelaxed;
    const bool others = own_mode == cudaStreamCaptureModeGlobal && graph->mode == cudaStreamCaptureModeGlobal;
    if (!own && !others) continue;
    graph->broken = true;
    forbidden = true;
  }
  return forbidden;
}

struct CUgraph_st {
  std::shared_ptr<Graph> graph;
};
struct CUgraphExec_st {
  std::shared_ptr<Graph> graph;
};

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr) return error(cudaErrorStreamCaptureUnsupported);
  std::lock_guard lock(stream->mutex);
  if (stream->capture) return error(cudaErrorIllegalState);
  stream->capture = std::make_shared<Graph>();
  stream->capture->origin = stream;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->mode = mode;
  const std::lock_guard inner(captures().mutex);
  captures().all.insert(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  std::shared_ptr<Graph> captured;
  {
    std::lock_guard lock(stream->mutex);
    if (!stream->capture || stream->capture->origin != stream) return error(cudaErrorIllegalState);
    if (stream->capture->mode != cudaStreamCaptureModeRelaxed &&
        stream->capture->thread != std::this_thread::get_id())
      return error(cudaErrorStreamCaptureWrongThread);
    captured = std::move(stream->capture);
    std::lock_guard inner(captured->mutex);
    captured->ended = true;
  }
  {
    const std::lock_guard lock(captures().mutex);
    captures().all.erase(captured);
  }
  for (CUstream_st* other : captured->joined) {
    std::lock_guard lock(other->mutex);
    other->capture = nullptr;
  }
  if (captured->broken) return error(cudaErrorStreamCaptureInvalidated);
  if (!captured->unjoined.empty()) return error(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{captured};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  std::lock_guard lock(stream->mutex);
  *status = !stream->capture          ? cudaStreamCaptureStatusNone
            : stream->capture->broken ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, own_mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->graph};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  cudaStreamIsCapturing(stream, &status);
  if (status != cudaStreamCaptureStatusNone) return error(cudaErrorStreamCaptureUnsupported);
  // One piece of work: nothing that others give the stream comes in between.
  stream->push([graph = exec->graph] {
    for (const auto& node : graph->nodes) node();
  });
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
}
