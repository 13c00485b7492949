// SPDX-License-Identifier: MIT
// kernels/ops_matmul.cpp - matrix products and the linear layer's family.
#include "core/span.h"
#include "kernels/ops_check.h"

namespace brigade::ops {
namespace {

Shape batch_of(const Tensor& x) {
  Shape batch = x.shape();
  batch.erase(batch.size() - 1);
  batch.erase(batch.size() - 1);
  return batch;
}

Shape with_matrix(Shape batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// x's shape with another last size.
Shape with_last(const Tensor& x, std::int64_t size) {
  Shape shape = x.shape();
  shape[shape.size() - 1] = size;
  return shape;
}

void check_weight(std::string_view op, const Tensor& x, const Tensor& w, int inner) {
  check_floating(op, x);
  check_floating(op, w);
  BRIGADE_CHECK(x.dims() >= 1 && w.dims() == 2 && x.shape().back() == w.shape()[inner], op, ": ",
                inner == 1 ? "x [.., I] and weight [O, I] must agree on I"
                           : "dy [.., O] and weight [O, I] must agree on O",
                "; got ", x.shape(), " and ", w.shape());
  check_parameter(op, "weight", w, w.shape(), x);
}

}  // namespace

DType computed_in(DType dtype, Device device) { return kernels(device).computed_in(dtype); }

Tensor matmul(const Tensor& a, const Tensor& b) {
  const Span span("matmul", [&] { return SpanDetails{{"a", a.shape()}, {"b", b.shape()}}; });
  check_same_kind("matmul", a, b);
  check_floating("matmul", a);
  BRIGADE_CHECK(a.dims() >= 2 && b.dims() >= 2 && a.size(-1) == b.size(-2),
                "matmul: a [.., M, K] and b [.., K, N] must agree on K; got ", a.shape(), " and ", b.shape());
  const Shape batch = broadcast_shapes("matmul: batch dims", batch_of(a), batch_of(b));
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  Tensor out = Tensor::empty(with_matrix(batch, m, n), a.dtype(), a.device());
  kernels(a.device()).matmul(a.expand(with_matrix(batch, m, k)), b.expand(with_matrix(batch, k, n)), 0, out);
  return out;
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation then) {
  const Span span("linear", [&] { return SpanDetails{{"x", x.shape()}, {"weight", w.shape()}}; });
  check_weight("linear", x, w, 1);
  if (bias.defined()) check_parameter("linear", "bias", bias, {w.size(0)}, x);
  const Tensor rows = as_rows(x);
  Tensor out = Tensor::empty({rows.size(0), w.size(0)}, x.dtype(), x.device());
  kernels(x.device()).linear(rows, contiguous(w), bias.defined() ? contiguous(bias) : bias, then, out);
  return out.view(with_last(x, w.size(0)));
}

Tensor linear_grad_input(const Tensor& dy, const Tensor& w) {
  const Span span("linear_grad_input", [&] {
    return SpanDetails{{"dy", dy.shape()}, {"weight", w.shape()}};
  });
  check_weight("linear_grad_input", dy, w, 0);
  const Tensor rows = as_rows(dy);
  Tensor dx = Tensor::empty({rows.size(0), w.size(1)}, dy.dtype(), dy.device());
  kernels(dy.device()).linear_grad_input(rows, contiguous(w), dx);
  return dx.view(with_last(dy, w.size(1)));
}

void linear_grad_weight(const Tensor& dy, const Tensor& x, Tensor& dw) {
  const Span span("linear_grad_weight", [&] { return SpanDetails{{"dy", dy.shape()}, {"x", x.shape()}}; });
  check_same_kind("linear_grad_weight", dy, x);
  check_floating("linear_grad_weight", x);
  BRIGADE_CHECK(dy.dims() >= 1 && x.dims() >= 1, "linear_grad_weight: needs dy [.., O] and x [.., I]; got ",
                dy.shape(), " and ", x.shape());
  check_parameter("linear_grad_weight", "dw", dw, {dy.size(-1), x.size(-1)}, x);
  const Tensor left = as_rows(dy), right = as_rows(x);
  BRIGADE_CHECK(left.size(0) == right.size(0), "linear_grad_weight: dy and x must have as many rows; got ",
                dy.shape(), " and ", x.shape());
  BRIGADE_CHECK(dw.is_contiguous(), "linear_grad_weight: dw must be contiguous; got strides ", dw.strides());
  kernels(x.device()).linear_grad_weight(left, right, dw);
  dw.bump_version();
}

void bias_grad(const Tensor& dy, Tensor& db) {
  const Span span("bias_grad");
  check_floating("bias_grad", dy);
  BRIGADE_CHECK(dy.dims() >= 1, "bias_grad: needs dy [.., C] or [N, C, H, W]; got ", dy);
  // Four dims are an image's, channels second; any other number are rows of channels.
  const bool spatial = dy.dims() == 4;
  check_parameter("bias_grad", "db", db, {spatial ? dy.size(1) : dy.size(-1)}, dy);
  BRIGADE_CHECK(db.is_contiguous(), "bias_grad: db must be contiguous; got strides ", db.strides());
  kernels(dy.device()).bias_grad(spatial ? dense(dy) : as_rows(dy), db);
  db.bump_version();
}

}  // namespace brigade::ops
