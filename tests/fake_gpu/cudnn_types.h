// SPDX-License-Identifier: MIT
// tests/fake_gpu/cudnn_types.h - what stands behind the handles and descriptors of the emulated cuDNN.
#pragma once

#include <cudnn.h>

#include <cstdio>

#include "tests/fake_gpu/cudnn_loops.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  fake_gpu::Sizes size{};
};
struct cudnnFilterStruct {
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  fake_gpu::Sizes size{};
};
struct cudnnConvolutionStruct {
  std::array<std::int64_t, 2> padding{}, stride{1, 1}, dilation{1, 1};
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  std::int64_t groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace fake_gpu {

/// What cudnnGetLastErrorString() gives on this thread.
inline thread_local char cudnn_error[128] = "";

/// `status`, and why.
inline cudnnStatus_t refuse(cudnnStatus_t status, const char* why) {
  std::snprintf(cudnn_error, sizeof cudnn_error, "emulated: %s", why);
  return status;
}

}  // namespace fake_gpu
