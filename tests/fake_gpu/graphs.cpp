// SPDX-License-Identifier: MIT
// tests/fake_gpu/graphs.cpp - emulated capture and replay of a stream's work.
#include "tests/fake_gpu/internal.h"

using namespace fake_gpu;

struct CUgraph_st {
  std::shared_ptr<Graph> graph;
};
struct CUgraphExec_st {
  std::shared_ptr<Graph> graph;
};

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  std::lock_guard lock(stream->mutex);
  if (stream->capture) return error(cudaErrorIllegalState);
  stream->capture = std::make_shared<Graph>();
  stream->capture->origin = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  std::shared_ptr<Graph> captured;
  {
    std::lock_guard lock(stream->mutex);
    if (!stream->capture || stream->capture->origin != stream) return error(cudaErrorIllegalState);
    captured = std::move(stream->capture);
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

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->graph};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const auto& node : exec->graph->nodes) stream->push(node);
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
