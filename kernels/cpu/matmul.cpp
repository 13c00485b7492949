// SPDX-License-Identifier: MIT
// kernels/cpu/matmul.cpp - matrix products: brings operands into a form oneDNN takes and
// chooses who computes. f32 and bf16 go to oneDNN, f16 is computed in f32, f64 has its own
// loop, integers use the reference.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/structured.h"
#include "kernels/ops.h"

namespace brigade::cpu {

namespace {

// out = a b + bias + beta out in f64; a and b dense but for a repeated b (batch stride 0), out dense.
// Each element adds its products in order of k, so results do not depend on the number of threads.
void matmul_f64(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, Tensor& out) {
  constexpr std::int64_t kWidth = 256;  // Columns at a time: the sums of four rows take 8 KiB, a part of L1.
  constexpr std::int64_t kRows = 4;     // Each element of b is loaded once for so many rows.
  const std::int64_t m = a.size(1), k = a.size(2), n = b.size(2);
  const std::int64_t b_batch = b.size(0) == 1 ? 0 : b.stride(0);
  const double *pa = a.data<double>(), *pb = b.data<double>();
  const double* pbias = bias.defined() ? bias.data<double>() : nullptr;
  double* po = out.data<double>();

  parallel_for(a.size(0) * m, kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end;) {
      // Rows of one block share their matrix b.
      const std::int64_t batch = row / m, rows = std::min({kRows, end - row, (batch + 1) * m - row});
      for (std::int64_t j0 = 0; j0 < n; j0 += kWidth) {
        const std::int64_t width = std::min(kWidth, n - j0);
        double sums[kRows][kWidth];
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t j = 0; j < width; ++j)
            sums[r][j] = (pbias ? pbias[j0 + j] : 0) + (beta != 0 ? po[(row + r) * n + j0 + j] : 0);
        for (std::int64_t i = 0; i < k; ++i) {
          const double* b_row = pb + batch * b_batch + i * n + j0;
          for (std::int64_t r = 0; r < rows; ++r) {
            const double factor = pa[(row + r) * k + i];
            for (std::int64_t j = 0; j < width; ++j) sums[r][j] += factor * b_row[j];
          }
        }
        for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sums[r], width, po + (row + r) * n + j0);
      }
      row += rows;
    }
  });
}

// [B, rows, cols] from [.., rows, cols]: a view where strides allow it.
Tensor batched(const Tensor& t) {
  return ops::reshape(
      t, {numel(t.shape()) / std::max<std::int64_t>(t.size(-2) * t.size(-1), 1), t.size(-2), t.size(-1)});
}

// One matrix b for the whole batch: [B, M, K] x [K, N] is one product with B M rows.
bool is_repeated(const Tensor& b) { return b.size(0) == 1 || b.stride(0) == 0; }

}  // namespace

DType computed_in(DType dtype) {
  const bool missing = dtype == DType::f16 || (dtype == DType::bf16 && !onednn::supports_bf16());
  return missing ? DType::f32 : dtype;
}

void product(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, Tensor& out) {
  if (out.numel() == 0) return;
  const bool unsafe = a.dtype() == DType::bf16 && onednn::bf16_product_is_unsafe(out.size(-1));
  if (unsafe || computed_in(a.dtype()) != a.dtype()) {
    Tensor sums = beta != 0 ? ops::cast(out, DType::f32) : Tensor::empty(out.shape());
    product(ops::cast(a, DType::f32), ops::cast(b, DType::f32), bias, beta, sums);
    if (!sums.same_view(out)) kernels({}).copy(sums, out);
    return;
  }
  if (a.size(-1) == 0) {  // An empty sum; oneDNN does nothing then.
    if (beta == 0) kernels({}).fill(out, 0);
    if (bias.defined()) ops::binary_(Binary::add, out, ops::cast(bias, out.dtype()));
    return;
  }
  const Shape batch_shape{numel(out.shape()) / (out.size(-2) * out.size(-1)), out.size(-2), out.size(-1)};
  const bool direct = out.can_view(batch_shape) && onednn::is_row_major(out);
  if (!direct) {
    Tensor dense = beta != 0 ? ops::clone(out) : Tensor::empty(out.shape(), out.dtype());
    product(a, b, bias, beta, dense);
    kernels({}).copy(dense, out);
    return;
  }

  Tensor a3 = batched(a), b3 = batched(b), out3 = out.view(batch_shape);
  const Shape one_a{1, a3.size(0) * a3.size(1), a3.size(2)}, one_out{1, one_a[1], out3.size(2)};
  if (a3.size(0) > 1 && is_repeated(b3) && a3.can_view(one_a) && out3.can_view(one_out)) {
    a3 = a3.view(one_a);
    b3 = b3.slice(0, 0, 1);
    out3 = out3.view(one_out);
  }
  if (a.dtype() == DType::f64) {
    Tensor dense = out3.is_contiguous() ? out3 : ops::contiguous(out3);
    const Tensor dense_b = is_repeated(b3) ? ops::contiguous(b3.slice(0, 0, 1)) : ops::contiguous(b3);
    matmul_f64(ops::contiguous(a3), dense_b, bias, beta, dense);
    if (!dense.same_view(out3)) kernels({}).copy(dense, out3);
    return;
  }
  if (!onednn::is_matrix(a3)) a3 = ops::contiguous(a3);
  if (!onednn::is_matrix(b3)) b3 = ops::contiguous(b3);
  onednn::matmul(a3, b3, bias, beta, out3);
}

void matmul(const Tensor& a, const Tensor& b, double beta, Tensor& out) {
  if (is_floating(a.dtype())) return product(a, b, {}, beta, out);
  reference_kernels().matmul(a, b, beta, out);
}

// y = x wᵀ + bias   =>   dx = dy w,   dw = dyᵀ x
void linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation then, Tensor& out) {
  product(x, ops::cast(w, x.dtype()).transpose(0, 1), bias, 0, out);
  // Not as oneDNN's post-op: its ReLU is a maximum that makes 0 of a NaN, and nobody would see a broken weight.
  if (then == Activation::relu) kernels({}).unary(Unary::relu, out, out);
}

void linear_grad_input(const Tensor& dy, const Tensor& w, Tensor& dx) {
  product(dy, ops::cast(w, dy.dtype()), {}, 0, dx);
}

void linear_grad_weight(const Tensor& dy, const Tensor& x, Tensor& dw) {
  product(dy.transpose(0, 1), x, {}, 0, dw);
}

}  // namespace brigade::cpu
