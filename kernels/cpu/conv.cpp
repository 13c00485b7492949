// SPDX-License-Identifier: MIT
// kernels/cpu/conv.cpp - the convolution slots: brings tensors into a shape that algorithms take and lets the chosen
// one run. f16 is computed in f32, bf16 too where the processor has no bf16.
// Read next: conv_algorithms.h.
#include "kernels/cpu/conv_algorithms.h"
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

// dx += the gradient, where it lies if the algorithm can do that.
void add_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  const bool in_place = is_dense(dx) && dx.dtype() == dy.dtype();
  Tensor share = in_place ? dx : Tensor::empty(dx.shape(), dy.dtype(), {}, dx.memory_format());
  ConvProblem problem(ConvPass::grad_input, share, dy, window);
  problem.adds = in_place;
  const ConvAlgorithm& algorithm = choose_conv(problem);
  if (in_place && algorithm.add_grad_input != nullptr) return algorithm.add_grad_input(dy, w, window, dx);
  if (in_place) share = ops::empty_like(dx);
  algorithm.grad_input(dy, w, window, share);
  kernels({}).binary(Binary::add, dx, ops::cast(share, dx.dtype()), dx);
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  if (out.numel() == 0) return;
  const DType dtype = computed_in(x.dtype());
  const Tensor input = as_dense_as(ops::cast(x, dtype), out);
  with_dense(out, dtype, [&](Tensor& result) {
    choose_conv({ConvPass::forward, input, result, window}).forward(input, w, bias, window, result);
  });
}

void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments& moments) {
  if (x.dtype() == out.dtype() && computed_in(x.dtype()) == x.dtype() && out.numel() > 0 && is_dense(out)) {
    const Tensor input = as_dense_as(x, out);
    ConvProblem problem(ConvPass::forward, input, out, window);
    problem.takes_moments = true;
    const ConvAlgorithm& algorithm = choose_conv(problem);
    if (algorithm.forward_with_moments != nullptr)
      return algorithm.forward_with_moments(input, w, bias, window, out, moments);
  }
  conv2d(x, w, bias, window, out);
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, double beta, Tensor& dx) {
  if (dx.numel() == 0) return;
  const DType dtype = computed_in(dy.dtype());
  const Tensor gradient = as_dense_as(ops::cast(dy, dtype), dx);
  if (beta != 0) return add_grad_input(gradient, w, window, dx);
  with_dense(dx, dtype, [&](Tensor& result) {
    choose_conv({ConvPass::grad_input, result, gradient, window}).grad_input(gradient, w, window, result);
  });
}

void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  if (dy.numel() == 0 || x.numel() == 0) return kernels({}).fill(dw, 0);
  const DType dtype = computed_in(x.dtype());
  const Tensor cast = ops::cast(x, dtype), input = is_dense(cast) ? cast : ops::contiguous(cast);
  const Tensor gradient = as_dense_as(ops::cast(dy, dtype), input);
  choose_conv({ConvPass::grad_weight, input, gradient, window}).grad_weight(gradient, input, window, dw);
}

}  // namespace brigade::cpu
