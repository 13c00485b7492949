// SPDX-License-Identifier: MIT
// kernels/ops_norm.cpp - batch and layer norm: shapes of parameters and statistics.
#include "core/span.h"
#include "kernels/ops_check.h"

namespace brigade::ops {
namespace {

// Returns [C].
Shape check_batch(std::string_view op, const Tensor& x) {
  check_floating(op, x);
  BRIGADE_CHECK(x.dims() == 4 || x.dims() == 2, op, ": needs [N, C, H, W] or [N, C]; got ", x);
  return {x.size(1)};
}

void check_written(std::string_view op, std::string_view what, const Tensor& t, const Shape& shape,
                   const Tensor& x) {
  check_parameter(op, what, t, shape, x);
  BRIGADE_CHECK(t.is_contiguous(), op, ": ", what, " must be contiguous; got strides ", t.strides());
}

void check_tail(std::string_view op, const BatchNormTail& tail, const Tensor& x) {
  if (tail.residual.defined()) check_same(op, tail.residual, x);
}

void check_moments(std::string_view op, const ChannelMoments& m, const Shape& channels) {
  for (const Tensor* t : {&m.mean, &m.squares})
    BRIGADE_CHECK(
        t->defined() == m.mean.defined() &&
            (!t->defined() || (t->shape() == channels && t->dtype() == DType::f64 && t->is_contiguous())),
        op, ": moments must be two contiguous f64 ", channels, " or undefined; got ", m.mean, " and ",
        m.squares);
}

void check_forward(std::string_view op, const Tensor& dy, const BatchNormForward& f) {
  const Shape channels = check_batch(op, f.x);
  check_same(op, dy, f.x);
  check_parameter(op, "gamma", f.gamma, channels, f.x);
  check_parameter(op, "mean", f.mean, channels, f.x);
  check_parameter(op, "invstd", f.invstd, channels, f.x);
  if (f.shift.defined()) check_parameter(op, "shift", f.shift, channels, f.x);
  if (f.y.defined()) check_same(op, f.y, f.x);
}

// What the kernels take: x dense in some format, vectors contiguous.
BatchNormForward dense_forward(const BatchNormForward& f) {
  const auto vector = [](const Tensor& t) { return t.defined() ? contiguous(t) : t; };
  return {dense(f.x), vector(f.gamma), vector(f.mean), vector(f.invstd), vector(f.shift), f.y};
}

// A gradient written in place of dy must lie like x.
void check_gradient(std::string_view op, std::string_view what, const Tensor& t, const Tensor& x) {
  check_same(op, t, x);
  BRIGADE_CHECK(t.is_contiguous(x.memory_format()), op, ": ", what, " must be dense like x; got strides ",
                t.strides());
}

}  // namespace

BatchNormalized batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, double momentum,
                                 double epsilon, Tensor& running_mean, Tensor& running_var,
                                 const BatchNormTail& tail, const ChannelMoments& moments) {
  const Span span("batch_norm_train", [&] { return SpanDetails{{"x", x.shape()}}; });
  constexpr std::string_view op = "batch_norm";
  const Shape channels = check_batch(op, x);
  check_parameter(op, "gamma", gamma, channels, x);
  check_parameter(op, "beta", beta, channels, x);
  check_tail(op, tail, x);
  check_moments(op, moments, channels);
  BRIGADE_CHECK(running_mean.defined() == running_var.defined(),
                "batch_norm: running_mean and running_var must both be there or both be undefined");
  if (running_mean.defined()) {
    check_written(op, "running_mean", running_mean, channels, x);
    check_written(op, "running_var", running_var, channels, x);
  }
  // The unbiased variance of one value is 0 / 0, and its standardised value is always 0.
  BRIGADE_CHECK(x.numel() > x.size(1), "batch_norm: training needs more than one value a channel; got x ",
                x.shape());
  const auto statistic = [&] { return Tensor::empty(channels, parameter_dtype(x.dtype()), x.device()); };
  BatchNormalized result{empty_like(x), statistic(), statistic(), statistic()};
  kernels(x.device())
      .batch_norm_train(dense(x), contiguous(gamma), contiguous(beta), momentum, epsilon, tail, moments,
                        running_mean, running_var, result.out, result.mean, result.invstd, result.shift);
  if (running_mean.defined()) {
    running_mean.bump_version();
    running_var.bump_version();
  }
  return result;
}

Tensor batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                       const Tensor& running_var, double epsilon, const BatchNormTail& tail) {
  const Span span("batch_norm_eval", [&] { return SpanDetails{{"x", x.shape()}}; });
  constexpr std::string_view op = "batch_norm";
  const Shape channels = check_batch(op, x);
  check_parameter(op, "gamma", gamma, channels, x);
  check_parameter(op, "beta", beta, channels, x);
  check_parameter(op, "running_mean", running_mean, channels, x);
  check_parameter(op, "running_var", running_var, channels, x);
  check_tail(op, tail, x);
  Tensor out = empty_like(x);
  kernels(x.device())
      .batch_norm_eval(dense(x), contiguous(gamma), contiguous(beta), contiguous(running_mean),
                       contiguous(running_var), epsilon, tail, out);
  return out;
}

ChannelMoments batch_norm_moments(const Tensor& x) {
  const Span span("batch_norm_moments", [&] { return SpanDetails{{"x", x.shape()}}; });
  const Shape channels = check_batch("batch_norm_moments", x);
  ChannelMoments result{Tensor::empty(channels, DType::f64, x.device()),
                        Tensor::empty(channels, DType::f64, x.device())};
  kernels(x.device()).batch_norm_moments(dense(x), result.mean, result.squares);
  return result;
}

void batch_norm_grad_sums(const Tensor& dy, const BatchNormForward& forward, Tensor& dz, Tensor& dgamma,
                          Tensor& dbeta) {
  const Span span("batch_norm_grad_sums", [&] { return SpanDetails{{"x", forward.x.shape()}}; });
  constexpr std::string_view op = "batch_norm_grad";
  const Tensor& x = forward.x;
  check_forward(op, dy, forward);
  check_written(op, "dgamma", dgamma, {x.size(1)}, x);
  check_written(op, "dbeta", dbeta, {x.size(1)}, x);
  if (forward.y.defined()) check_gradient(op, "dz", dz, x);
  kernels(x.device())
      .batch_norm_grad_sums(contiguous(dy, x.memory_format()), dense_forward(forward), dz, dgamma, dbeta);
  if (forward.y.defined()) dz.bump_version();
  dgamma.bump_version();
  dbeta.bump_version();
}

void batch_norm_grad_input(const Tensor& dy, const BatchNormForward& forward, const Tensor& dgamma,
                           const Tensor& dbeta, double count, Tensor& dx) {
  const Span span("batch_norm_grad_input", [&] { return SpanDetails{{"x", forward.x.shape()}}; });
  constexpr std::string_view op = "batch_norm_grad";
  const Tensor& x = forward.x;
  check_forward(op, dy, forward);
  check_parameter(op, "dgamma", dgamma, {x.size(1)}, x);
  check_parameter(op, "dbeta", dbeta, {x.size(1)}, x);
  check_gradient(op, "dx", dx, x);
  kernels(x.device())
      .batch_norm_grad_input(contiguous(dy, x.memory_format()), dense_forward(forward), contiguous(dgamma),
                             contiguous(dbeta), count, dx);
  dx.bump_version();
}

Normalized layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  const Span span("layer_norm");
  constexpr std::string_view op = "layer_norm";
  check_floating(op, x);
  BRIGADE_CHECK(x.dims() >= 1 && x.size(-1) >= 1, "layer_norm: needs x [.., D] with D at least 1; got ", x);
  check_parameter(op, "gamma", gamma, {x.size(-1)}, x);
  check_parameter(op, "beta", beta, {x.size(-1)}, x);
  const Shape rows{x.numel() / x.size(-1)};
  const DType statistic = parameter_dtype(x.dtype());
  Normalized result{Tensor::empty(x.shape(), x.dtype(), x.device()),
                    Tensor::empty(rows, statistic, x.device()), Tensor::empty(rows, statistic, x.device())};
  kernels(x.device())
      .layer_norm(contiguous(x), contiguous(gamma), contiguous(beta), epsilon, result.out, result.mean,
                  result.invstd);
  return result;
}

Tensor layer_norm_grad(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                       const Tensor& invstd, Tensor& dgamma, Tensor& dbeta) {
  const Span span("layer_norm_grad");
  constexpr std::string_view op = "layer_norm_grad";
  check_floating(op, x);
  check_same(op, dy, x);
  BRIGADE_CHECK(x.dims() >= 1 && x.size(-1) >= 1, "layer_norm_grad: needs x [.., D] with D at least 1; got ",
                x);
  const Shape width{x.size(-1)}, rows{x.numel() / x.size(-1)};
  check_parameter(op, "gamma", gamma, width, x);
  check_parameter(op, "mean", mean, rows, x);
  check_parameter(op, "invstd", invstd, rows, x);
  check_written(op, "dgamma", dgamma, width, x);
  check_written(op, "dbeta", dbeta, width, x);
  Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device())
      .layer_norm_grad(contiguous(dy), contiguous(x), contiguous(gamma), contiguous(mean), contiguous(invstd),
                       dx, dgamma, dbeta);
  dgamma.bump_version();
  dbeta.bump_version();
  return dx;
}

}  // namespace brigade::ops
