// SPDX-License-Identifier: MIT
// kernels/cpu/conv.cpp - convolution: who computes which dtype and shape. oneDNN takes f32 and bf16;
// im2col takes f64, what oneDNN must not be given and what is faster so; f16 is computed in f32.
// Read next: onednn_conv.cpp, conv_im2col.cpp.
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/structured.h"
#include "kernels/ops.h"

namespace brigade::cpu {

namespace {

bool is_dense(const Tensor& t) { return t.is_contiguous() || t.is_contiguous(MemoryFormat::channels_last); }

// `t` dense in a memory format that `like` has too. A tensor of one channel or one pixel has both.
Tensor as_dense_as(const Tensor& t, const Tensor& like) {
  for (const MemoryFormat format : {MemoryFormat::channels_last, MemoryFormat::contiguous})
    if (t.is_contiguous(format) && like.is_contiguous(format)) return t;
  return ops::contiguous(t, like.memory_format());
}

// Runs `body(result)` with `out` itself, or with a dense tensor of `dtype` that is then copied to `out`.
template <class Body>
void with_dense(Tensor& out, DType dtype, const Body& body) {
  if (is_dense(out) && out.dtype() == dtype) return body(out);
  Tensor dense = Tensor::empty(out.shape(), dtype, {}, out.memory_format());
  body(dense);
  kernels({}).copy(dense, out);
}

enum class Pass { forward, grad_input, grad_weight };

// Whether im2col and a product on AMX tiles beat oneDNN's direct bf16 convolution: where there are few
// pixels to spread over the tiles, or a stride. Measured on ResNet-18's convolutions at batch 32,
// direct against im2col: 10.9 : 5.0 ms forward on 4x4 pixels, 50 : 11 for its weights, 34 : 2.2 for
// the weights of a stride-2 layer. The rule looks at shapes only and never at a clock: every run and
// every rank computes the same bits.
bool is_faster_as_product(Pass pass, const Tensor& x, const Tensor& y, const Window& window) {
  if (x.dtype() != DType::bf16 || window.groups != 1 || x.size(1) < 64 || y.size(1) < 64) return false;
  if (!x.is_contiguous(MemoryFormat::channels_last) || !onednn::supports_amx()) return false;
  const std::int64_t pixels = y.size(2) * y.size(3);
  const bool strided = window.stride[0] > 1 || window.stride[1] > 1;
  switch (pass) {
    case Pass::forward:
      return pixels <= 16;
    case Pass::grad_input:
      return pixels <= 16 || (strided && pixels <= 64);
    case Pass::grad_weight:
      return pixels <= 64 || strided;
  }
  return false;
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  if (out.numel() == 0) return;
  const DType dtype = computed_in(x.dtype());
  const Tensor input = as_dense_as(ops::cast(x, dtype), out);
  with_dense(out, dtype, [&](Tensor& result) {
    if (dtype == DType::f64 || is_faster_as_product(Pass::forward, input, result, window))
      return im2col::conv2d(input, w, bias, window, result);
    onednn::conv2d(input, w, bias, window, result);
  });
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  if (dx.numel() == 0) return;
  const DType dtype = computed_in(dy.dtype());
  const Tensor gradient = as_dense_as(ops::cast(dy, dtype), dx);
  with_dense(dx, dtype, [&](Tensor& result) {
    if (dtype == DType::f64 || is_faster_as_product(Pass::grad_input, result, gradient, window))
      return im2col::conv2d_grad_input(gradient, w, window, result);
    onednn::conv2d_grad_input(gradient, w, window, result);
  });
}

void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  if (dy.numel() == 0 || x.numel() == 0) return kernels({}).fill(dw, 0);
  const DType dtype = computed_in(x.dtype());
  const Tensor cast = ops::cast(x, dtype), input = is_dense(cast) ? cast : ops::contiguous(cast);
  const Tensor gradient = as_dense_as(ops::cast(dy, dtype), input);
  if (dtype == DType::f64 || onednn::backward_weights_is_unsafe(input, window) ||
      is_faster_as_product(Pass::grad_weight, input, gradient, window))
    return im2col::conv2d_grad_weight(gradient, input, window, dw);
  onednn::conv2d_grad_weight(gradient, input, window, dw);
}

}  // namespace brigade::cpu
