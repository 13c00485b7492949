// SPDX-License-Identifier: MIT
// kernels/ops_attention.cpp - attention: what q, k and v have to agree on.
#include "core/span.h"
#include "kernels/ops_check.h"

namespace brigade::ops {
namespace {

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  constexpr std::string_view op = "attention";
  check_floating(op, q);
  check_same(op, k, v);
  check_same_kind(op, q, k);
  BRIGADE_CHECK(q.dims() == 4 && k.dims() == 4 && q.size(0) == k.size(0) && q.size(1) == k.size(1) &&
                    q.size(3) == k.size(3),
                "attention: q [N, H, T, D] and k, v [N, H, S, D] must agree on N, H and D; got ", q, " and ",
                k);
  BRIGADE_CHECK(q.size(3) >= 1 && q.size(3) <= kMaxHeadWidth, "attention: D must lie in [1, ", kMaxHeadWidth,
                "]; got q ", q);
  BRIGADE_CHECK(k.size(2) >= 1, "attention: needs at least one key; got k ", k);
  BRIGADE_CHECK(!options.causal || q.size(2) == k.size(2),
                "attention: causal needs a key for each query; got q ", q, " and k ", k);
}

bool has_dense_rows(const Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1; }

Tensor with_dense_rows(const Tensor& x) { return has_dense_rows(x) ? x : contiguous(x); }

}  // namespace

Attended attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const Span span("attention", [&] { return SpanDetails{{"q", q.shape()}, {"k", k.shape()}}; });
  check_attention(q, k, v, options);
  const std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2);
  Attended result{Tensor::empty({batch, queries, heads, q.size(3)}, q.dtype(), q.device()).transpose(1, 2),
                  Tensor::empty({batch, heads, queries}, parameter_dtype(q.dtype()), q.device())};
  kernels(q.device())
      .attention(with_dense_rows(q), with_dense_rows(k), with_dense_rows(v), options, result.out,
                 result.log_sums);
  return result;
}

void attention_grad(const Tensor& dout, const AttentionForward& forward, const AttentionOptions& options,
                    Tensor& dq, Tensor& dk, Tensor& dv) {
  const Tensor &q = forward.q, &k = forward.k, &v = forward.v, &out = forward.out,
               &log_sums = forward.log_sums;
  const Span span("attention_grad", [&] { return SpanDetails{{"q", q.shape()}, {"k", k.shape()}}; });
  constexpr std::string_view op = "attention_grad";
  check_attention(q, k, v, options);
  check_same(op, out, q);
  check_same(op, dout, q);
  check_parameter(op, "log_sums", log_sums, {q.size(0), q.size(1), q.size(2)}, q);
  for (const auto& [gradient, of] : {std::pair(&dq, &q), std::pair(&dk, &k), std::pair(&dv, &v)}) {
    check_same(op, *gradient, *of);
    check_writable(op, *gradient);
    BRIGADE_CHECK(has_dense_rows(*gradient), "attention_grad: rows of a gradient must be dense; got strides ",
                  gradient->strides());
  }
  kernels(q.device())
      .attention_grad(with_dense_rows(dout),
                      {with_dense_rows(q), with_dense_rows(k), with_dense_rows(v), with_dense_rows(out),
                       contiguous(log_sums)},
                      options, dq, dk, dv);
  for (Tensor* gradient : {&dq, &dk, &dv}) gradient->bump_version();
}

}  // namespace brigade::ops
