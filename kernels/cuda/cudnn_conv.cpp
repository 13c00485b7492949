// SPDX-License-Identifier: MIT
// kernels/cuda/cudnn_conv.cpp - see cudnn.h: one plan a problem (descriptors, and the algorithms that may be taken,
// best first), and running it. Read before: kernels/cuda/cudnn_passes.h.
#include <algorithm>
#include <map>
#include <vector>

#include "core/cuda/stream_cuda.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/cudnn_passes.h"
#include "kernels/cuda/workspace.h"

namespace brigade::cuda {

namespace {

// An algorithm that wants more is passed over. The fast ones for channels_last take a few MiB.
constexpr std::size_t kMaxWorkspaceBytes = std::size_t{512} << 20;

bool is_unsupported(cudnnStatus_t status) {
  return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
}

class Plan {
 public:
  Plan(cudnnHandle_t handle, const ConvProblem& problem, Device device, const ConvMemory& memory)
      : problem_(problem), descriptors_(problem) {
    with_family(problem.pass, [&](auto family) {
      using Family = decltype(family);
      typename Family::Perf perf[Family::kCount];
      int found = 0;
      if (problem.timed)
        time<Family>(handle, device, memory, perf, &found);
      else if (const auto status = Family::guess(handle, descriptors_, &found, perf); !is_unsupported(status))
        check_cudnn(status, "cudnnGetConvolution…Algorithm_v7", problem);
      for (int i = 0; i < found; ++i)
        // Without determinism two runs, or a run and its continuation, would drift apart.
        if (perf[i].status == CUDNN_STATUS_SUCCESS && perf[i].determinism == CUDNN_DETERMINISTIC &&
            perf[i].memory <= kMaxWorkspaceBytes)
          candidates_.push_back({static_cast<int>(perf[i].algo), perf[i].mathType});
    });
  }

  // Takes the best candidate. A heuristic may have promised one that then refuses: it is forgotten, and the next tried.
  bool run(cudnnHandle_t handle, Device device, const ConvMemory& memory, double beta) {
    const double one = 1;
    const auto one_f32 = 1.0F, beta_f32 = static_cast<float>(beta);
    const bool f64 = problem_.dtype == DType::f64;
    const ConvFactors factors = f64 ? ConvFactors{&one, &beta} : ConvFactors{&one_f32, &beta_f32};
    return with_family(problem_.pass, [&](auto family) {
      using Family = decltype(family);
      while (!candidates_.empty()) {
        const auto algorithm = static_cast<typename Family::Algorithm>(candidates_.front().algorithm);
        descriptors_.set_math(candidates_.front().math, problem_);
        std::size_t bytes = 0;
        auto status = Family::workspace_bytes(handle, descriptors_, algorithm, &bytes);
        if (status == CUDNN_STATUS_SUCCESS) {
          const Workspace workspace(device, static_cast<std::int64_t>(bytes));
          status = Family::run(handle, descriptors_, memory, algorithm, {workspace.data(), bytes}, factors);
        }
        if (!is_unsupported(status)) {
          check_cudnn(status, "cudnnConvolution…", problem_);
          return true;
        }
        candidates_.erase(candidates_.begin());
      }
      return false;
    });
  }

  bool is_empty() const { return candidates_.empty(); }

 private:
  // cuDNN runs every algorithm on the tensors, but for the output: it may be one that is to be added to.
  template <class Family>
  void time(cudnnHandle_t handle, Device device, ConvMemory memory, typename Family::Perf* perf, int* found) {
    std::size_t most = 0;
    for (int a = 0; a < Family::kCount; ++a) {
      std::size_t bytes = 0;
      const auto algorithm = static_cast<typename Family::Algorithm>(a);
      const bool known =
          Family::workspace_bytes(handle, descriptors_, algorithm, &bytes) == CUDNN_STATUS_SUCCESS;
      if (known && bytes <= kMaxWorkspaceBytes) most = std::max(most, bytes);
    }
    const Workspace workspace(device, static_cast<std::int64_t>(most));
    const auto& sizes = problem_.pass == ConvPass::forward      ? problem_.y
                        : problem_.pass == ConvPass::grad_input ? problem_.x
                                                                : problem_.w;
    const Workspace output(device, sizes[0] * sizes[1] * sizes[2] * sizes[3] * size_of(problem_.dtype));
    Family::output(memory) = output.data();
    const auto status = Family::time(handle, descriptors_, memory, found, perf, {workspace.data(), most});
    if (!is_unsupported(status)) check_cudnn(status, "cudnnFindConvolution…AlgorithmEx", problem_);
  }

  struct Candidate {
    int algorithm;
    cudnnMathType_t math;
  };

  ConvProblem problem_;
  ConvDescriptors descriptors_;
  std::vector<Candidate> candidates_;
};

// The calling thread's handle and plans on one device.
class Context {
 public:
  static Context& of_this_thread(Device device) {
    thread_local std::map<int, Context> contexts;
    return contexts[device.index];
  }

  Context() {
    const auto major = static_cast<int>(cudnnGetVersion() / 10000);
    BRIGADE_CHECK(major == CUDNN_MAJOR, "conv2d: this program was built for cuDNN ", CUDNN_MAJOR,
                  "; got libcudnn of version ", major, "; look at LD_LIBRARY_PATH");
    cudnnHandle_t handle = nullptr;
    check_cudnn(cudnnCreate(&handle), "cudnnCreate", {});
    handle_ = {handle, cudnnDestroy};
  }

  Plan& plan(const ConvProblem& problem, Device device, const ConvMemory& memory) {
    const auto known = plans_.find(problem);
    if (known != plans_.end()) return known->second;
    return plans_.try_emplace(problem, handle_.get(), problem, device, memory).first->second;
  }

  bool is_known_to_refuse(const ConvProblem& problem) const {
    const auto known = plans_.find(problem);
    return known != plans_.end() && known->second.is_empty();
  }

  cudnnHandle_t handle() const { return handle_.get(); }

 private:
  CudnnHandle<cudnnHandle_t> handle_{nullptr, nullptr};
  std::map<ConvProblem, Plan> plans_;
};

}  // namespace

bool cudnn_convolve(const ConvProblem& problem, const Tensor& x, const Tensor& w, const Tensor& y,
                    double beta) {
  const Device device = x.device();
  const cudaStream_t stream = current_cuda_stream(device);
  Context& context = Context::of_this_thread(device);
  check_cudnn(cudnnSetStream(context.handle(), stream), "cudnnSetStream", problem);
  const ConvMemory memory{x.raw(), w.raw(), y.raw()};
  return context.plan(problem, device, memory).run(context.handle(), device, memory, beta);
}

bool cudnn_is_known_to_refuse(const ConvProblem& problem, Device device) {
  static_cast<void>(current_cuda_stream(device));  // Makes the device the thread's current one.
  return Context::of_this_thread(device).is_known_to_refuse(problem);
}

}  // namespace brigade::cuda
