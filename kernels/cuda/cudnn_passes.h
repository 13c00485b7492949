// SPDX-License-Identifier: MIT
// kernels/cuda/cudnn_passes.h - cuDNN's three families of functions for a convolution in one shape, and its descriptors
// as values. Included by kernels/cuda/cudnn_conv.cpp only.
#pragma once

#include <cudnn.h>

#include <memory>
#include <type_traits>

#include "kernels/cuda/conv_problem.h"

namespace brigade::cuda {

/// Throws Error with cuDNN's words unless `status` is success.
inline void check_cudnn(cudnnStatus_t status, const char* call, const ConvProblem& p) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char details[512] = "";
  cudnnGetLastErrorString(details, sizeof details);
  fail(str(name(p.pass), ": ", call, " failed: ", cudnnGetErrorString(status), " (", details, "); it was ",
           p));
}

template <class T>
using CudnnHandle = std::unique_ptr<std::remove_pointer_t<T>, cudnnStatus_t (*)(T)>;

/// What a problem's tensors, weights and window are called by cuDNN.
class ConvDescriptors {
 public:
  explicit ConvDescriptors(const ConvProblem& p) : ConvDescriptors() {
    const auto format = p.format == MemoryFormat::channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    const cudnnDataType_t type = data_type(p.dtype);
    const auto n = [](std::int64_t value) { return static_cast<int>(value); };
    check_cudnn(cudnnSetTensor4dDescriptor(x(), format, type, n(p.x[0]), n(p.x[1]), n(p.x[2]), n(p.x[3])),
                "cudnnSetTensor4dDescriptor", p);
    check_cudnn(cudnnSetTensor4dDescriptor(y(), format, type, n(p.y[0]), n(p.y[1]), n(p.y[2]), n(p.y[3])),
                "cudnnSetTensor4dDescriptor", p);
    check_cudnn(cudnnSetFilter4dDescriptor(w(), type, format, n(p.w[0]), n(p.w[1]), n(p.w[2]), n(p.w[3])),
                "cudnnSetFilter4dDescriptor", p);
    // 16-bit factors are summed in f32. "Convolution" would flip the kernel.
    check_cudnn(cudnnSetConvolution2dDescriptor(conv(), n(p.padding[0]), n(p.padding[1]), n(p.stride[0]),
                                                n(p.stride[1]), n(p.dilation[0]), n(p.dilation[1]),
                                                CUDNN_CROSS_CORRELATION,
                                                p.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
                "cudnnSetConvolution2dDescriptor", p);
    check_cudnn(cudnnSetConvolutionGroupCount(conv(), n(p.groups)), "cudnnSetConvolutionGroupCount", p);
    set_math(wanted_math(p), p);
  }

  cudnnTensorDescriptor_t x() const { return x_.get(); }
  cudnnTensorDescriptor_t y() const { return y_.get(); }
  cudnnFilterDescriptor_t w() const { return w_.get(); }
  cudnnConvolutionDescriptor_t conv() const { return conv_.get(); }

  void set_math(cudnnMathType_t math, const ConvProblem& p) const {
    check_cudnn(cudnnSetConvolutionMathType(conv(), math), "cudnnSetConvolutionMathType", p);
  }

 private:
  ConvDescriptors()
      : x_(make<cudnnTensorDescriptor_t>(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor)),
        y_(make<cudnnTensorDescriptor_t>(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor)),
        w_(make<cudnnFilterDescriptor_t>(cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor)),
        conv_(make<cudnnConvolutionDescriptor_t>(cudnnCreateConvolutionDescriptor,
                                                 cudnnDestroyConvolutionDescriptor)) {}

  template <class T>
  static CudnnHandle<T> make(cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)) {
    T descriptor = nullptr;
    check_cudnn(create(&descriptor), "cudnnCreate…Descriptor", {});
    return {descriptor, destroy};
  }

  static cudnnDataType_t data_type(DType dtype) {
    switch (dtype) {
      case DType::f32:
        return CUDNN_DATA_FLOAT;
      case DType::f64:
        return CUDNN_DATA_DOUBLE;
      case DType::bf16:
        return CUDNN_DATA_BFLOAT16;
      case DType::f16:
        return CUDNN_DATA_HALF;
      default:
        fail(str("conv2d: needs a floating dtype; got ", dtype));
    }
  }

  // The default takes TF32 for f32 wherever there are tensor cores for it.
  static cudnnMathType_t wanted_math(const ConvProblem& p) {
    if (size_of(p.dtype) == 2) return CUDNN_TENSOR_OP_MATH;
    return p.dtype == DType::f32 && !p.tf32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
  }

  CudnnHandle<cudnnTensorDescriptor_t> x_, y_;
  CudnnHandle<cudnnFilterDescriptor_t> w_;
  CudnnHandle<cudnnConvolutionDescriptor_t> conv_;
};

/// Where x, w and y lie; a pass writes one of them.
struct ConvMemory {
  void *x, *w, *y;
};
/// Scratch memory.
struct ConvScratch {
  void* at;
  std::size_t bytes;
};
/// One and beta, of the type that cuDNN reads for a dtype.
struct ConvFactors {
  const void *alpha, *beta;
};

// A family: Perf, what is known of an algorithm; kCount of them; output() is what the pass writes; guess() ranks them
// by cuDNN's heuristic and time() by running them; workspace_bytes() and run() are for one.
struct ConvForward {
  using Perf = cudnnConvolutionFwdAlgoPerf_t;
  using Algorithm = cudnnConvolutionFwdAlgo_t;
  static constexpr int kCount = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
  static void*& output(ConvMemory& m) { return m.y; }
  static cudnnStatus_t guess(cudnnHandle_t h, const ConvDescriptors& d, int* found, Perf* perf) {
    return cudnnGetConvolutionForwardAlgorithm_v7(h, d.x(), d.w(), d.conv(), d.y(), kCount, found, perf);
  }
  static cudnnStatus_t time(cudnnHandle_t h, const ConvDescriptors& d, ConvMemory m, int* found, Perf* perf,
                            ConvScratch s) {
    return cudnnFindConvolutionForwardAlgorithmEx(h, d.x(), m.x, d.w(), m.w, d.conv(), d.y(), m.y, kCount,
                                                  found, perf, s.at, s.bytes);
  }
  static cudnnStatus_t workspace_bytes(cudnnHandle_t h, const ConvDescriptors& d, Algorithm a,
                                       std::size_t* bytes) {
    return cudnnGetConvolutionForwardWorkspaceSize(h, d.x(), d.w(), d.conv(), d.y(), a, bytes);
  }
  static cudnnStatus_t run(cudnnHandle_t h, const ConvDescriptors& d, ConvMemory m, Algorithm a,
                           ConvScratch s, ConvFactors f) {
    return cudnnConvolutionForward(h, f.alpha, d.x(), m.x, d.w(), m.w, d.conv(), a, s.at, s.bytes, f.beta,
                                   d.y(), m.y);
  }
};

struct ConvGradInput {
  using Perf = cudnnConvolutionBwdDataAlgoPerf_t;
  using Algorithm = cudnnConvolutionBwdDataAlgo_t;
  static constexpr int kCount = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
  static void*& output(ConvMemory& m) { return m.x; }
  static cudnnStatus_t guess(cudnnHandle_t h, const ConvDescriptors& d, int* found, Perf* perf) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(h, d.w(), d.y(), d.conv(), d.x(), kCount, found, perf);
  }
  static cudnnStatus_t time(cudnnHandle_t h, const ConvDescriptors& d, ConvMemory m, int* found, Perf* perf,
                            ConvScratch s) {
    return cudnnFindConvolutionBackwardDataAlgorithmEx(h, d.w(), m.w, d.y(), m.y, d.conv(), d.x(), m.x,
                                                       kCount, found, perf, s.at, s.bytes);
  }
  static cudnnStatus_t workspace_bytes(cudnnHandle_t h, const ConvDescriptors& d, Algorithm a,
                                       std::size_t* bytes) {
    return cudnnGetConvolutionBackwardDataWorkspaceSize(h, d.w(), d.y(), d.conv(), d.x(), a, bytes);
  }
  static cudnnStatus_t run(cudnnHandle_t h, const ConvDescriptors& d, ConvMemory m, Algorithm a,
                           ConvScratch s, ConvFactors f) {
    return cudnnConvolutionBackwardData(h, f.alpha, d.w(), m.w, d.y(), m.y, d.conv(), a, s.at, s.bytes,
                                        f.beta, d.x(), m.x);
  }
};

struct ConvGradWeight {
  using Perf = cudnnConvolutionBwdFilterAlgoPerf_t;
  using Algorithm = cudnnConvolutionBwdFilterAlgo_t;
  static constexpr int kCount = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
  static void*& output(ConvMemory& m) { return m.w; }
  static cudnnStatus_t guess(cudnnHandle_t h, const ConvDescriptors& d, int* found, Perf* perf) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, d.x(), d.y(), d.conv(), d.w(), kCount, found,
                                                         perf);
  }
  static cudnnStatus_t time(cudnnHandle_t h, const ConvDescriptors& d, ConvMemory m, int* found, Perf* perf,
                            ConvScratch s) {
    return cudnnFindConvolutionBackwardFilterAlgorithmEx(h, d.x(), m.x, d.y(), m.y, d.conv(), d.w(), m.w,
                                                         kCount, found, perf, s.at, s.bytes);
  }
  static cudnnStatus_t workspace_bytes(cudnnHandle_t h, const ConvDescriptors& d, Algorithm a,
                                       std::size_t* bytes) {
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(h, d.x(), d.y(), d.conv(), d.w(), a, bytes);
  }
  static cudnnStatus_t run(cudnnHandle_t h, const ConvDescriptors& d, ConvMemory m, Algorithm a,
                           ConvScratch s, ConvFactors f) {
    return cudnnConvolutionBackwardFilter(h, f.alpha, d.x(), m.x, d.y(), m.y, d.conv(), a, s.at, s.bytes,
                                          f.beta, d.w(), m.w);
  }
};

/// Calls `body(family)` with the one of `pass`.
template <class Body>
decltype(auto) with_family(ConvPass pass, const Body& body) {
  switch (pass) {
    case ConvPass::forward:
      return body(ConvForward{});
    case ConvPass::grad_input:
      return body(ConvGradInput{});
    default:
      return body(ConvGradWeight{});
  }
}

}  // namespace brigade::cuda
