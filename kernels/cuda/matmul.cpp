// SPDX-License-Identifier: MIT
// kernels/cuda/matmul.cpp - matrix products on a GPU: brings operands into a form that cuBLASLt takes. 16-bit products
// sum in f32 and round once. Integers go by way of f64. The same on the CPU: kernels/cpu/matmul.cpp.
#include <algorithm>

#include "core/cuda/check_cuda.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/gemm_problem.h"
#include "kernels/cuda/settings.h"
#include "kernels/cuda/slots.h"
#include "kernels/ops.h"

namespace brigade::cuda {

namespace {

Shape as_batch(const Tensor& t) {
  const std::int64_t matrix = std::max<std::int64_t>(t.size(-2) * t.size(-1), 1);
  return {t.numel() / matrix, t.size(-2), t.size(-1)};
}

// [B, rows, cols], a view where strides allow it, of matrices that cuBLASLt takes.
Tensor operand(const Tensor& t) {
  const Tensor matrices = ops::reshape(t, as_batch(t));
  return is_gemm_matrix(matrices) ? matrices : ops::contiguous(matrices);
}

// out = a b + beta out, then the epilogue; out has the dtype of a and b or is f32, the bias that of out.
void product(const Tensor& a, const Tensor& b, const GemmEpilogue& then, double beta, Tensor& out) {
  if (out.numel() == 0) return;
  if (const DType computed = computed_in(a.dtype()); computed != a.dtype()) {
    Tensor sums = beta != 0 ? ops::cast(out, computed) : Tensor::empty(out.shape(), computed, out.device());
    const Tensor wide_bias = then.bias.defined() ? ops::cast(then.bias, computed) : then.bias;
    product(ops::cast(a, computed), ops::cast(b, computed), {wide_bias, then.relu}, beta, sums);
    if (!sums.same_view(out)) copy(sums, out);
    return;
  }
  if (a.size(-1) == 0) {  // An empty sum, which cuBLASLt does not take.
    if (beta == 0) fill(out, 0);
    if (then.bias.defined()) ops::binary_(Binary::add, out, then.bias);
    if (then.relu) unary(Unary::relu, out, out);
    return;
  }
  if (!is_row_major(out) || !out.can_view(as_batch(out))) {
    // outᵀ = bᵀ aᵀ, if that lies better; a bias would then run the wrong way.
    Tensor transposed = out.transpose(-1, -2);
    if (!then.bias.defined() && is_row_major(transposed) && transposed.can_view(as_batch(transposed)))
      return product(b.transpose(-1, -2), a.transpose(-1, -2), then, beta, transposed);
    Tensor dense = beta != 0 ? ops::clone(out) : Tensor::empty(out.shape(), out.dtype(), out.device());
    product(a, b, then, beta, dense);
    copy(dense, out);
    return;
  }

  Tensor a3 = operand(a), b3 = operand(b), out3 = out.view(as_batch(out));
  // One matrix b for the whole batch: [B, M, K] x [K, N] is one product with B M rows.
  const Shape one_a{1, a3.size(0) * a3.size(1), a3.size(2)}, one_out{1, one_a[1], out3.size(2)};
  if (a3.size(0) > 1 && b3.stride(0) == 0 && a3.can_view(one_a) && out3.can_view(one_out)) {
    a3 = a3.view(one_a);
    b3 = b3.slice(0, 0, 1);
    out3 = out3.view(one_out);
  }
  cublas_lt_matmul(a3, b3, then, beta, out3);
}

// cuBLASLt's epilogue takes a bias in the output's dtype, and reads 16 bytes at a time.
Tensor epilogue_bias(const Tensor& bias, DType dtype) {
  if (!bias.defined()) return bias;
  const Tensor cast = ops::cast(bias, dtype);
  return reinterpret_cast<std::uintptr_t>(cast.raw()) % 16 == 0 ? cast : ops::clone(cast);
}

}  // namespace

// NVIDIA's libraries take bf16 from compute capability 8.0 on.
DType computed_in(DType dtype) {
  if (dtype != DType::bf16) return dtype;
  int device = 0, major = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice", "to know whether it has bf16");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "cudaDeviceGetAttribute", "to know whether the device has bf16");
  return major >= 8 ? dtype : DType::f32;
}

void matmul(const Tensor& a, const Tensor& b, double beta, Tensor& out) {
  if (is_floating(a.dtype())) return product(a, b, {}, beta, out);
  // Exact as long as sums stay below 2^53. Nothing but tests multiplies integers: ops::matmul takes floats.
  Tensor sums = ops::cast(out, DType::f64);
  product(ops::cast(a, DType::f64), ops::cast(b, DType::f64), {}, beta, sums);
  copy(sums, out);
}

// y = x wᵀ + bias   =>   dx = dy w,   dw = dyᵀ x
void linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation then, Tensor& out) {
  const bool relu = then == Activation::relu, in_epilogue = relu && relu_in_epilogue();
  product(x, ops::cast(w, x.dtype()).transpose(0, 1), {epilogue_bias(bias, x.dtype()), in_epilogue}, 0, out);
  if (relu && !in_epilogue) unary(Unary::relu, out, out);
}

void linear_grad_input(const Tensor& dy, const Tensor& w, Tensor& dx) {
  product(dy, ops::cast(w, dy.dtype()), {}, 0, dx);
}

void linear_grad_weight(const Tensor& dy, const Tensor& x, Tensor& dw) {
  product(dy.transpose(0, 1), x, {}, 0, dw);
}

}  // namespace brigade::cuda
