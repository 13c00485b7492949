// SPDX-License-Identifier: MIT
// core/cuda/check_cuda.h - failures of the CUDA runtime as Errors: the call, its code's text, and what we were doing.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "core/check.h"

namespace brigade {

/// Throws Error unless `code` is success: check_cuda(cudaMalloc(&p, n), "cudaMalloc", "to allocate ", n, " bytes").
/// An earlier kernel's failure may show up in any later call: the text says so where the code does not fit the call.
template <class... Doing>
void check_cuda(cudaError_t code, std::string_view call, const Doing&... doing) {
  if (code == cudaSuccess) [[likely]]
    return;
  static_cast<void>(cudaGetLastError());  // Not to be found again by the next call, unless it is sticky.
  const bool of_a_kernel = code == cudaErrorIllegalAddress || code == cudaErrorLaunchFailure ||
                           code == cudaErrorMisalignedAddress || code == cudaErrorLaunchTimeout ||
                           code == cudaErrorIllegalInstruction || code == cudaErrorAssert;
  fail(str(call, ": ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ") ", str(doing...),
           of_a_kernel ? "; a kernel launched before failed: run again with CUDA_LAUNCH_BLOCKING=1" : ""));
}

}  // namespace brigade
