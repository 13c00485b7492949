// SPDX-License-Identifier: MIT
// kernels/cuda/gemm_problem.cpp - see gemm_problem.h.
#include "kernels/cuda/gemm_problem.h"

#include <algorithm>

namespace brigade::cuda {

namespace {

// Strides of a dim of size 1 are never used and may hold any number.
bool row_major(std::int64_t rows, std::int64_t cols, std::int64_t row_stride, std::int64_t col_stride) {
  return (cols == 1 || col_stride == 1) && (rows == 1 || row_stride >= std::max<std::int64_t>(cols, 1));
}

std::int64_t row_stride(const Tensor& t) { return t.stride(t.dims() - 2); }
std::int64_t col_stride(const Tensor& t) { return t.stride(t.dims() - 1); }

std::int64_t alignment_of(const Tensor& t) {
  const auto address = reinterpret_cast<std::uintptr_t>(t.raw());
  std::int64_t alignment = 16;  // The widest access. More would only make problems differ that are the same.
  while (address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

// tᵀ in column-major words: see the head of gemm_problem.h.
GemmMatrix transpose_of(const Tensor& t) {
  const std::int64_t rows = t.size(-2), cols = t.size(-1);
  const bool direct = is_row_major(t);
  GemmMatrix m{.dtype = t.dtype(), .transposed = !direct};
  m.rows = direct ? cols : rows;
  m.cols = direct ? rows : cols;
  m.ld = direct ? row_stride(t) : col_stride(t);
  if (m.cols == 1) m.ld = m.rows;  // A single column has no next one, and its stride may be anything.
  m.batch_stride = t.size(0) == 1 ? 0 : t.stride(0);
  m.alignment = alignment_of(t);
  return m;
}

}  // namespace

bool is_row_major(const Tensor& t) { return row_major(t.size(-2), t.size(-1), row_stride(t), col_stride(t)); }

bool is_gemm_matrix(const Tensor& t) {
  return is_row_major(t) || row_major(t.size(-1), t.size(-2), col_stride(t), row_stride(t));
}

GemmProblem gemm_problem(const Tensor& a, const Tensor& b, const Tensor& bias, double beta,
                         const Tensor& out) {
  return {.a = transpose_of(b),
          .b = transpose_of(a),
          .d = transpose_of(out),
          .batch = out.size(0),
          .bias_alignment = bias.defined() ? alignment_of(bias) : 0,
          .adds = beta != 0};
}

void append_text(std::string& out, const GemmProblem& p) {
  out += str(p.a.dtype, " [", p.d.cols, ", ", p.inner(), "] x [", p.inner(), ", ", p.d.rows, "]");
  if (p.d.dtype != p.a.dtype) out += str(" to ", p.d.dtype);
  if (p.batch > 1) out += str(", ", p.batch, " of them");
  if (p.bias_alignment != 0) out += " + bias";
  if (p.relu) out += ", ReLU";
  if (p.adds) out += ", added to the output";
}

}  // namespace brigade::cuda
