// SPDX-License-Identifier: MIT
// tests/fake_gpu/cudnn.cpp - libcudnn.so.9 of the emulated GPU: the convolutions that the product calls. It refuses
// what NVIDIA's documentation of the three calls refuses: sizes that do not fit, f64 in NHWC, pointers off 16 bytes
// beside 16-bit dtypes, too little workspace. Like the real one it lists algorithms that are fast and not deterministic
// first, and now and then one that refuses when it is run; taking the former is an error here. What it gives is a plain
// loop, run on the emulated stream.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/fake_gpu/cudnn_types.h"
#include "tests/fake_gpu/fake_gpu.h"

namespace {

using fake_gpu::DType;
using fake_gpu::refuse;
using fake_gpu::Sizes;

enum class Pass { forward, data, filter };

std::atomic<int> guesses{0}, timings{0};
DType dtype(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return DType::f64;
    case CUDNN_DATA_HALF:
      return DType::f16;
    case CUDNN_DATA_BFLOAT16:
      return DType::bf16;
    default:
      return DType::f32;
  }
}

// One call's tensors.
struct Problem {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct conv;

  bool half() const { return x.type == CUDNN_DATA_HALF || x.type == CUDNN_DATA_BFLOAT16; }
  bool nhwc() const { return x.format == CUDNN_TENSOR_NHWC; }
  bool dilated() const { return conv.dilation != std::array<std::int64_t, 2>{1, 1}; }

  cudnnStatus_t check() const {
    if (x.type != y.type || x.type != w.type) return refuse(CUDNN_STATUS_BAD_PARAM, "dtypes differ");
    if (x.format != y.format || x.format != w.format)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "formats differ");
    if ((x.type == CUDNN_DATA_DOUBLE) != (conv.compute == CUDNN_DATA_DOUBLE))
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "compute type");
    if (x.size[1] != w.size[1] * conv.groups || y.size[1] != w.size[0] || w.size[0] % conv.groups != 0 ||
        x.size[0] != y.size[0])
      return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "channels or images");
    for (std::size_t d = 0; d < 2; ++d) {
      const std::int64_t reach = conv.dilation[d] * (w.size[d + 2] - 1) + 1;
      const std::int64_t size = (x.size[d + 2] + 2 * conv.padding[d] - reach) / conv.stride[d] + 1;
      if (y.size[d + 2] != size) return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the output's size");
    }
    if (nhwc() && x.type == CUDNN_DATA_DOUBLE)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "f64 in NHWC");
    // More than the real one asks for: so that the way out of a refusal is walked.
    if (nhwc() && half() && conv.groups > 1 && w.size[1] % 4 != 0)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "groups of channels that fill no vector");
    if (half() && conv.math != CUDNN_TENSOR_OP_MATH && conv.math != CUDNN_DEFAULT_MATH)
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "math type");
    return CUDNN_STATUS_SUCCESS;
  }
};

// Algorithms by pass, fastest first as a heuristic would say. `refuses`: only when it is run, and only where dilated.
struct Algorithm {
  int id;
  bool deterministic, refuses_dilation;
};
std::vector<Algorithm> algorithms(Pass pass, const Problem& p) {
  if (pass == Pass::forward) {
    if (p.x.type == CUDNN_DATA_DOUBLE) return {{CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, false}};
    return {{CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, true, true},
            {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, false}};
  }
  if (pass == Pass::data)
    return {{CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false, false},
            {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, false}};
  return {{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false, false},
          {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false, false},
          {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, false}};
}

std::size_t workspace_bytes(const Algorithm& a) { return a.id == 1 ? 2048 : 0; }

const Algorithm* find(const std::vector<Algorithm>& list, int id) {
  const auto at = std::find_if(list.begin(), list.end(), [=](const Algorithm& a) { return a.id == id; });
  return at == list.end() ? nullptr : &*at;
}

template <class Perf>
cudnnStatus_t list(Pass pass, const Problem& p, int requested, int* returned, Perf* perf) {
  *returned = 0;
  if (const auto status = p.check(); status != CUDNN_STATUS_SUCCESS) return status;
  for (const Algorithm& a : algorithms(pass, p)) {
    if (*returned == requested) break;
    Perf& to = perf[(*returned)++];
    to = {};
    to.algo = static_cast<decltype(to.algo)>(a.id);
    to.status = CUDNN_STATUS_SUCCESS;
    to.time = static_cast<float>(*returned);
    to.memory = workspace_bytes(a);
    to.determinism = a.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    to.mathType = p.conv.math;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Timing runs every algorithm: the output is no longer what it was, and nor is the workspace.
template <class Perf>
cudnnStatus_t time(cudnnHandle_t handle, Pass pass, const Problem& p, void* out, std::size_t out_bytes,
                   int requested, int* returned, Perf* perf, void* workspace, std::size_t bytes) {
  ++timings;
  if (const auto status = list(pass, p, requested, returned, perf); status != CUDNN_STATUS_SUCCESS)
    return status;
  for (int i = 0; i < *returned; ++i)
    if (perf[i].memory > bytes) perf[i].status = CUDNN_STATUS_NOT_SUPPORTED;
  fake_gpu::enqueue(handle->stream, [=] {
    std::memset(out, 0xff, out_bytes);
    if (bytes > 0) std::memset(workspace, 0xff, bytes);
  });
  return CUDNN_STATUS_SUCCESS;
}

std::size_t bytes_of(const Sizes& s, cudnnDataType_t type) {
  return static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3] * brigade::size_of(dtype(type)));
}

cudnnStatus_t workspace(Pass pass, const Problem& p, int id, std::size_t* bytes) {
  if (const auto status = p.check(); status != CUDNN_STATUS_SUCCESS) return status;
  const auto all = algorithms(pass, p);
  const Algorithm* a = find(all, id);
  if (a == nullptr) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "no such algorithm for this problem");
  *bytes = workspace_bytes(*a);
  return CUDNN_STATUS_SUCCESS;
}

// Checks and computes: `one` and `two` are read, in the order of the loops' arguments, `out` is written.
struct Operand {
  const void* at;
  Sizes size;
};
cudnnStatus_t run(cudnnHandle_t handle, Pass pass, const Problem& p, int id, const void* alpha, Operand one,
                  Operand two, const void* beta, void* out, Sizes out_size, void* workspace,
                  std::size_t bytes) {
  if (const auto status = p.check(); status != CUDNN_STATUS_SUCCESS) return status;
  const auto all = algorithms(pass, p);
  const Algorithm* a = find(all, id);
  if (a == nullptr || (a->refuses_dilation && p.dilated()))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this algorithm, for this problem");
  if (!a->deterministic) return refuse(CUDNN_STATUS_INTERNAL_ERROR, "the algorithm is not deterministic");
  if (bytes < workspace_bytes(*a) || (workspace_bytes(*a) > 0 && workspace == nullptr))
    return refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "workspace");
  for (const void* at : {one.at, two.at, static_cast<const void*>(out)}) {
    if (at == nullptr) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor");
    if (!fake_gpu::is_aligned(at, p.half() ? 16 : brigade::size_of(dtype(p.x.type))))
      return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a tensor");
  }
  const bool f64 = p.conv.compute == CUDNN_DATA_DOUBLE;
  const double a_value = fake_gpu::factor(alpha, f64), b_value = fake_gpu::factor(beta, f64);
  const fake_gpu::ConvGeometry g{p.x.size,      p.w.size,        p.y.size,     p.conv.padding,
                                 p.conv.stride, p.conv.dilation, p.conv.groups};
  fake_gpu::enqueue(handle->stream, [=, type = dtype(p.x.type), last = p.nhwc(), used = workspace_bytes(*a)] {
    if (used > 0) std::memset(workspace, 0xff, used);  // Whoever shares it notices.
    const auto first = fake_gpu::unpacked(one.at, type, one.size, last);
    const auto second = fake_gpu::unpacked(two.at, type, two.size, last);
    std::vector<double> result(
        static_cast<std::size_t>(out_size[0] * out_size[1] * out_size[2] * out_size[3]));
    const auto loop = pass == Pass::forward ? fake_gpu::conv_forward
                      : pass == Pass::data  ? fake_gpu::conv_grad_input
                                            : fake_gpu::conv_grad_weight;
    loop(g, first.data(), second.data(), result.data());
    fake_gpu::pack(result, a_value, b_value, out, type, out_size, last);
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

/// For tests: how often an algorithm was looked for in this process, by heuristic and by the clock.
int cudnn_fake_guesses() { return guesses; }
int cudnn_fake_timings() { return timings; }

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, const int requested,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* perf) {
  ++guesses;
  return list(Pass::forward, {*x, *y, *w, *conv}, requested, returned, perf);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t conv,
                                                          const cudnnTensorDescriptor_t dx,
                                                          const int requested, int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* perf) {
  ++guesses;
  return list(Pass::data, {*dx, *dy, *w, *conv}, requested, returned, perf);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t conv,
                                                            const cudnnFilterDescriptor_t dw,
                                                            const int requested, int* returned,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* perf) {
  ++guesses;
  return list(Pass::filter, {*x, *dy, *dw, *conv}, requested, returned, perf);
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t h, const cudnnTensorDescriptor_t x, const void*, const cudnnFilterDescriptor_t w,
    const void*, const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t y, void* out,
    const int requested, int* returned, cudnnConvolutionFwdAlgoPerf_t* perf, void* at, std::size_t bytes) {
  return time(h, Pass::forward, {*x, *y, *w, *conv}, out, bytes_of(y->size, y->type), requested, returned,
              perf, at, bytes);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t h, const cudnnFilterDescriptor_t w, const void*, const cudnnTensorDescriptor_t dy,
    const void*, const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t dx, void* out,
    const int requested, int* returned, cudnnConvolutionBwdDataAlgoPerf_t* perf, void* at,
    std::size_t bytes) {
  return time(h, Pass::data, {*dx, *dy, *w, *conv}, out, bytes_of(dx->size, dx->type), requested, returned,
              perf, at, bytes);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t h, const cudnnTensorDescriptor_t x, const void*, const cudnnTensorDescriptor_t dy,
    const void*, const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t dw, void* out,
    const int requested, int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* perf, void* at,
    std::size_t bytes) {
  return time(h, Pass::filter, {*x, *dy, *dw, *conv}, out, bytes_of(dw->size, dw->type), requested, returned,
              perf, at, bytes);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t conv,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algo, std::size_t* bytes) {
  return workspace(Pass::forward, {*x, *y, *w, *conv}, algo, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t conv,
                                                           const cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algo,
                                                           std::size_t* bytes) {
  return workspace(Pass::data, {*dx, *dy, *w, *conv}, algo, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t conv,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algo,
                                                             std::size_t* bytes) {
  return workspace(Pass::filter, {*x, *dy, *dw, *conv}, algo, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void* alpha, const cudnnTensorDescriptor_t x,
                                      const void* x_at, const cudnnFilterDescriptor_t w, const void* w_at,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algo,
                                      void* at, std::size_t bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y, void* out) {
  return run(h, Pass::forward, {*x, *y, *w, *conv}, algo, alpha, {x_at, x->size}, {w_at, w->size}, beta, out,
             y->size, at, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void* alpha,
                                           const cudnnFilterDescriptor_t w, const void* w_at,
                                           const cudnnTensorDescriptor_t dy, const void* dy_at,
                                           const cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* at, std::size_t bytes,
                                           const void* beta, const cudnnTensorDescriptor_t dx, void* out) {
  return run(h, Pass::data, {*dx, *dy, *w, *conv}, algo, alpha, {dy_at, dy->size}, {w_at, w->size}, beta, out,
             dx->size, at, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void* alpha,
                                             const cudnnTensorDescriptor_t x, const void* x_at,
                                             const cudnnTensorDescriptor_t dy, const void* dy_at,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* at,
                                             std::size_t bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw, void* out) {
  return run(h, Pass::filter, {*x, *dy, *dw, *conv}, algo, alpha, {dy_at, dy->size}, {x_at, x->size}, beta,
             out, dw->size, at, bytes);
}

}  // extern "C"
