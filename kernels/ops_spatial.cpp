// SPDX-License-Identifier: MIT
// kernels/ops_spatial.cpp - convolution and pooling: geometry checks; results keep the memory format of x.
#include "core/span.h"
#include "kernels/ops_check.h"

namespace brigade::ops {
namespace {

void check_image(std::string_view op, const Tensor& x) {
  check_floating(op, x);
  BRIGADE_CHECK(x.dims() == 4, op, ": needs [N, C, H, W]; got ", x);
}

// Half a window of padding at most: otherwise a window could lie in the padding alone.
void check_pool(std::string_view op, const Window& window, const Shape& x) {
  check_window(op, window, x);
  for (int d = 0; d < 2; ++d)
    BRIGADE_CHECK(2 * window.padding[d] <= window.kernel[d], op,
                  ": padding is at most half the kernel; got padding ", window.padding[d], " and kernel ",
                  window.kernel[d]);
}

Shape pooled(const Shape& x, const Window& window) {
  return {x[0], x[1], window.out_size(0, x[2]), window.out_size(1, x[3])};
}

void check_conv(std::string_view op, const Shape& x, const Shape& w, const Window& window) {
  BRIGADE_CHECK(window.groups >= 1 && w.size() == 4 && x.size() == 4 && x[1] == w[1] * window.groups, op,
                ": x [N, C, H, W] and weight [O, C / groups, kH, kW] must agree on C; got ", x, " and ", w,
                " with ", window.groups, " groups");
  BRIGADE_CHECK(w[0] % window.groups == 0, op, ": groups must divide the output channels; got weight ", w,
                " and ", window.groups, " groups");
  BRIGADE_CHECK(w[2] == window.kernel[0] && w[3] == window.kernel[1], op, ": weight ", w, " and window ",
                window.kernel[0], " x ", window.kernel[1], " must agree on the kernel");
  check_window(op, window, x);
}

Shape conv_out(const Shape& x, const Shape& w, const Window& window) {
  return {x[0], w[0], window.out_size(0, x[2]), window.out_size(1, x[3])};
}

// For Span: [strides, paddings, dilations, groups].
Dims numbers(const Window& k) {
  return {k.stride[0], k.stride[1], k.padding[0], k.padding[1], k.dilation[0], k.dilation[1], k.groups};
}

SpanDetails conv_details(const Shape& x, const Shape& w, const Window& window) {
  return {{"x", x}, {"weight", w}, {"window", numbers(window)}};
}

SpanDetails pool_details(const Shape& x, const Window& window) {
  return {{"x", x}, {"kernel", {window.kernel[0], window.kernel[1]}}, {"window", numbers(window)}};
}

void check_shape(std::string_view op, const Tensor& dy, const Shape& expected) {
  BRIGADE_CHECK(dy.shape() == expected, op, ": dy must be ", expected, "; got ", dy);
}

void check_grad_input(std::string_view op, const Tensor& dy, const Tensor& w, const Window& window,
                      const Shape& x) {
  check_image(op, dy);
  check_floating(op, w);
  check_conv(op, x, w.shape(), window);
  check_shape(op, dy, conv_out(x, w.shape(), window));
  check_parameter(op, "weight", w, w.shape(), dy);
}

// Checks what a forward takes, and returns memory for its result.
Tensor new_conv_out(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window) {
  check_image("conv2d", x);
  check_floating("conv2d", w);
  check_conv("conv2d", x.shape(), w.shape(), window);
  check_parameter("conv2d", "weight", w, w.shape(), x);
  if (bias.defined()) check_parameter("conv2d", "bias", bias, {w.size(0)}, x);
  return Tensor::empty(conv_out(x.shape(), w.shape(), window), x.dtype(), x.device(), x.memory_format());
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window) {
  const Span span("conv2d", [&] { return conv_details(x.shape(), w.shape(), window); });
  Tensor out = new_conv_out(x, w, bias, window);
  kernels(x.device()).conv2d(dense(x), contiguous(w), bias.defined() ? contiguous(bias) : bias, window, out);
  return out;
}

ConvWithMoments conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias,
                                    const Window& window) {
  // The same work and so the same name for who adds up times.
  const Span span("conv2d", [&] { return conv_details(x.shape(), w.shape(), window); });
  ConvWithMoments result{.out = new_conv_out(x, w, bias, window), .moments = {}};
  kernels(x.device())
      .conv2d_with_moments(dense(x), contiguous(w), bias.defined() ? contiguous(bias) : bias, window,
                           result.out, result.moments);
  return result;
}

Tensor conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, const Shape& x_shape) {
  const Span span("conv2d_grad_input", [&] { return conv_details(x_shape, w.shape(), window); });
  check_grad_input("conv2d_grad_input", dy, w, window, x_shape);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device(), dy.memory_format());
  kernels(dy.device()).conv2d_grad_input(dense(dy), contiguous(w), window, 0, dx);
  return dx;
}

void add_conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  // The same work and so the same name for who adds up times.
  const Span span("conv2d_grad_input", [&] { return conv_details(dx.shape(), w.shape(), window); });
  check_image("add_conv2d_grad_input", dx);
  check_same_kind("add_conv2d_grad_input", dy, dx);
  check_grad_input("add_conv2d_grad_input", dy, w, window, dx.shape());
  BRIGADE_CHECK(dx.is_contiguous(dx.memory_format()), "add_conv2d_grad_input: dx must be dense; got strides ",
                dx.strides());
  kernels(dy.device()).conv2d_grad_input(dense(dy), contiguous(w), window, 1, dx);
  dx.bump_version();
}

void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  const Span span("conv2d_grad_weight", [&] { return conv_details(x.shape(), dw.shape(), window); });
  check_image("conv2d_grad_weight", x);
  check_same_kind("conv2d_grad_weight", dy, x);
  check_floating("conv2d_grad_weight", dw);
  check_conv("conv2d_grad_weight", x.shape(), dw.shape(), window);
  check_shape("conv2d_grad_weight", dy, conv_out(x.shape(), dw.shape(), window));
  check_parameter("conv2d_grad_weight", "dw", dw, dw.shape(), x);
  BRIGADE_CHECK(dw.is_contiguous(), "conv2d_grad_weight: dw must be contiguous; got strides ", dw.strides());
  kernels(x.device()).conv2d_grad_weight(contiguous(dy, x.memory_format()), dense(x), window, dw);
  dw.bump_version();
}

MaxPooled max_pool2d(const Tensor& x, const Window& window) {
  const Span span("max_pool2d", [&] { return pool_details(x.shape(), window); });
  check_image("max_pool2d", x);
  check_pool("max_pool2d", window, x.shape());
  const Shape shape = pooled(x.shape(), window);
  MaxPooled result{Tensor::empty(shape, x.dtype(), x.device(), x.memory_format()),
                   Tensor::empty(shape, DType::i64, x.device(), x.memory_format())};
  kernels(x.device()).max_pool2d(dense(x), window, result.out, result.index);
  return result;
}

Tensor max_pool2d_grad(const Tensor& dy, const Tensor& index, const Window& window, const Shape& x_shape) {
  const Span span("max_pool2d_grad");
  check_image("max_pool2d_grad", dy);
  BRIGADE_CHECK(index.defined() && index.shape() == dy.shape() && index.dtype() == DType::i64,
                "max_pool2d_grad: index must be i64 ", dy.shape(), "; got ", index);
  BRIGADE_CHECK(x_shape.size() == 4 && x_shape[0] == dy.size(0) && x_shape[1] == dy.size(1),
                "max_pool2d_grad: dy and x must agree on N and C; got ", dy.shape(), " and ", x_shape);
  check_pool("max_pool2d_grad", window, x_shape);
  check_shape("max_pool2d_grad", dy, pooled(x_shape, window));
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device(), index.memory_format());
  kernels(dy.device()).max_pool2d_grad(contiguous(dy, index.memory_format()), dense(index), window, dx);
  return dx;
}

Tensor avg_pool2d(const Tensor& x, const Window& window) {
  const Span span("avg_pool2d", [&] { return pool_details(x.shape(), window); });
  check_image("avg_pool2d", x);
  check_pool("avg_pool2d", window, x.shape());
  Tensor out = Tensor::empty(pooled(x.shape(), window), x.dtype(), x.device(), x.memory_format());
  kernels(x.device()).avg_pool2d(dense(x), window, out);
  return out;
}

Tensor avg_pool2d_grad(const Tensor& dy, const Window& window, const Shape& x_shape) {
  const Span span("avg_pool2d_grad", [&] { return pool_details(x_shape, window); });
  check_image("avg_pool2d_grad", dy);
  BRIGADE_CHECK(x_shape.size() == 4, "avg_pool2d_grad: x is [N, C, H, W]; got ", x_shape);
  check_pool("avg_pool2d_grad", window, x_shape);
  check_shape("avg_pool2d_grad", dy, pooled(x_shape, window));
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device(), dy.memory_format());
  kernels(dy.device()).avg_pool2d_grad(dense(dy), window, dx);
  return dx;
}

Tensor adaptive_avg_pool2d(const Tensor& x, std::int64_t out_h, std::int64_t out_w) {
  const Span span("adaptive_avg_pool2d", [&] {
    return SpanDetails{{"x", x.shape()}, {"out", {out_h, out_w}}};
  });
  check_image("adaptive_avg_pool2d", x);
  BRIGADE_CHECK(out_h >= 1 && out_w >= 1 && x.size(2) >= 1 && x.size(3) >= 1,
                "adaptive_avg_pool2d: sizes are at least 1; got x ", x.shape(), " to ", out_h, " x ", out_w);
  Tensor out = Tensor::empty({x.size(0), x.size(1), out_h, out_w}, x.dtype(), x.device(), x.memory_format());
  kernels(x.device()).adaptive_avg_pool2d(dense(x), out);
  return out;
}

Tensor adaptive_avg_pool2d_grad(const Tensor& dy, const Shape& x_shape) {
  const Span span("adaptive_avg_pool2d_grad", [&] {
    return SpanDetails{{"dy", dy.shape()}, {"x", x_shape}};
  });
  check_image("adaptive_avg_pool2d_grad", dy);
  BRIGADE_CHECK(x_shape.size() == 4 && x_shape[0] == dy.size(0) && x_shape[1] == dy.size(1),
                "adaptive_avg_pool2d_grad: dy and x must agree on N and C; got ", dy.shape(), " and ",
                x_shape);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device(), dy.memory_format());
  kernels(dy.device()).adaptive_avg_pool2d_grad(dense(dy), dx);
  return dx;
}

}  // namespace brigade::ops
