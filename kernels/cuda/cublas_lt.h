// SPDX-License-Identifier: MIT
// kernels/cuda/cublas_lt.h - matrix products by NVIDIA's cuBLASLt; cublas_lt.cpp is the sole user of cublasLt.h.
// The library is loaded at the first product, not with the program: it takes 50 ms and 200 MB of every process.
// Read before: kernels/cuda/gemm_problem.h. Read next: kernels/cuda/matmul.cpp.
#pragma once

#include "core/tensor.h"

namespace brigade::cuda {

/// How a product ends, in the pass that writes it: out = relu(a b + bias). A NaN that cuBLASLt's ReLU meets becomes 0.
struct GemmEpilogue {
  Tensor bias{};
  bool relu = false;
};

/// out = a b + beta out, then the epilogue, on the calling thread's current stream: a [B, M, K], b [B, K, N] with
/// is_gemm_matrix(), out [B, M, N] with is_row_major(), no size 0; beta is 0 or 1. a and b have one floating dtype, out
/// has it too or is f32 beside 16-bit ones; bias [N] is contiguous, on 16 bytes, and has out's dtype, or is undefined.
/// Sums are f32 (f64 for f64), rounded once. The algorithm is looked for once for each problem, thread and device.
/// Throws Error if the library is absent or fails.
void cublas_lt_matmul(const Tensor& a, const Tensor& b, const GemmEpilogue& then, double beta, Tensor& out);

}  // namespace brigade::cuda
