// SPDX-License-Identifier: MIT
// kernels/cuda/gemm_problem.h - a matrix product in cuBLASLt's words: what our row-major tensors are as column-major
// matrices. Plain arithmetic on strides, tested without a GPU. Read next: kernels/cuda/cublas_lt.h.
//
// cuBLASLt's matrices are column-major: element (r, c) lies at r + c * ld. The memory of a row-major [R, C] with rows
// `ld` apart, read that way, is its transpose [C, R]. So we never move anything, but ask for the transposed product
//   outᵀ = bᵀ aᵀ,   with  A := bᵀ [N, K],  B := aᵀ [K, M],  D := outᵀ [N, M]
// where "ᵀ" costs nothing for a row-major operand; one that is a transposed view lies in memory as b, not bᵀ, and gets
// the flag `transposed`. A bias [N] runs along D's rows, which is how cuBLASLt's epilogue adds one.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "core/tensor.h"

namespace brigade::cuda {

/// A batch of column-major matrices as they lie in memory.
struct GemmMatrix {
  DType dtype = DType::f32;
  bool transposed = false;  ///< The product takes the transpose of what lies there.
  std::int64_t rows = 0, cols = 0;
  std::int64_t ld = 0;            ///< Elements from one column to the next, at least `rows`.
  std::int64_t batch_stride = 0;  ///< Elements from one matrix to the next; 0 repeats one.
  std::int64_t alignment = 0;     ///< Of the first element, bytes: a power of two, 16 at most.

  friend auto operator<=>(const GemmMatrix&, const GemmMatrix&) = default;
};

/// D = A B + bias + beta D, or its ReLU: everything that an algorithm is chosen for, and no address.
struct GemmProblem {
  GemmMatrix a, b, d;
  std::int64_t batch = 1;
  std::int64_t bias_alignment = 0;  ///< 0: no bias. Its dtype is D's.
  bool adds = false;                ///< beta is 1, else 0.
  bool relu = false;                ///< The epilogue ends with one.
  bool tf32 = false;                ///< f32 only.

  std::int64_t inner() const { return a.transposed ? a.rows : a.cols; }  ///< K
  friend auto operator<=>(const GemmProblem&, const GemmProblem&) = default;
};

/// Whether the last two dims of `t` are rows that lie dense, one behind the other or further apart.
bool is_row_major(const Tensor& t);
/// Whether cuBLASLt can take them: row-major, or the transpose is.
bool is_gemm_matrix(const Tensor& t);

/// out = a b + bias + beta out for a [B, M, K], b [B, K, N] with is_gemm_matrix(), and out [B, M, N] with
/// is_row_major(). Matrices of a batch are repeated where their stride or their number is that of one.
GemmProblem gemm_problem(const Tensor& a, const Tensor& b, const Tensor& bias, double beta,
                         const Tensor& out);

/// "bf16 [64, 512] x [512, 10]", the sizes in our order.
void append_text(std::string& out, const GemmProblem& problem);

}  // namespace brigade::cuda
