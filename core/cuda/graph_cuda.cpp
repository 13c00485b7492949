// SPDX-License-Identifier: MIT
// core/cuda/graph_cuda.cpp - CUDA's stream capture behind Graph. The capture is of the thread-local kind: others, which
// look whether events of earlier work are done, go on as ever; those whose streams wait for a captured event add to it
// (the communication thread does). What is called on the thread that captures must neither wait nor allocate: memory
// comes from a pool of its own then (core/cuda/caching_allocator.h).
#include "core/cuda/graph_cuda.h"

#include <utility>

#include "core/cuda/check_cuda.h"
#include "core/cuda/devices.h"
#include "core/cuda/stream_cuda.h"

namespace brigade {
namespace {

CaptureMemory& memory_of(int index) { return dynamic_cast<CaptureMemory&>(cuda_runtime(index)); }

class CudaGraph final : public Graph {
 public:
  CudaGraph(int index, const std::function<void()>& record) : index_(index) {
    CaptureMemory& memory = memory_of(index_);
    const cudaStream_t stream = current_cuda_stream(device());
    memory.begin_capture();
    cudaGraph_t graph = nullptr;
    try {
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture",
                 "on ", device());
      try {
        record();
      } catch (...) {
        static_cast<void>(cudaStreamEndCapture(stream, &graph));
        static_cast<void>(cudaGetLastError());  // It may say that the capture failed, too.
        throw;
      }
      check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture", "on ", device());
      check_cuda(cudaGraphInstantiate(&step_, graph, 0), "cudaGraphInstantiate", "on ", device());
    } catch (...) {
      if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
      memory.release_pools(memory.end_capture());
      throw;
    }
    static_cast<void>(cudaGraphDestroy(graph));  // The executable form stands alone.
    pools_ = memory.end_capture();
  }

  ~CudaGraph() override {
    static_cast<void>(cudaGraphExecDestroy(step_));  // After the launches that are under way.
    memory_of(index_).release_pools(pools_);
  }

  void launch() override {
    check_cuda(cudaGraphLaunch(step_, current_cuda_stream(device())), "cudaGraphLaunch", "on ", device());
  }

 private:
  Device device() const { return {DeviceType::cuda, index_}; }

  int index_;
  cudaGraphExec_t step_ = nullptr;
  CaptureMemory::Pools pools_;
};

}  // namespace

std::unique_ptr<Graph> cuda_capture(int index, const std::function<void()>& record) {
  return std::make_unique<CudaGraph>(index, record);
}

bool cuda_is_capturing(int index) { return memory_of(index).is_capturing(); }

}  // namespace brigade
