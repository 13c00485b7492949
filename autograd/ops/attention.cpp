// SPDX-License-Identifier: MIT
// autograd/ops/attention.cpp - the derivatives of attention: one kernel makes all three.
#include "autograd/ops/attention.h"

#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

// Queries (0), keys (1) or values (2) of qkv [N, T, 3, H, D], as [N, H, T, D].
Tensor part(const Tensor& qkv, std::int64_t which) { return qkv.select(2, which).transpose(1, 2); }

}  // namespace

// out = p v, p = softmax(scale q kᵀ)   =>   dv = pᵀ dout,   ds = p (dout vᵀ - Σ dout out),
// dq = scale ds k,   dk = scale dsᵀ q
Variable attention(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options) {
  const ops::Attended forward = ops::attention(q.value(), k.value(), v.value(), options);
  return record("attention", forward.out, {q, k, v},
                [q_kept = SavedTensor(q.value()), k_kept = SavedTensor(k.value()),
                 v_kept = SavedTensor(v.value()), out_kept = SavedTensor(forward.out),
                 log_sums = forward.log_sums, options](const Tensor& dy, Gradients& out) {
                  const AttentionForward kept{out.load(q_kept), out.load(k_kept), out.load(v_kept),
                                              out.load(out_kept), log_sums};
                  const auto like = [](const Tensor& t) {
                    return Tensor::empty(t.shape(), t.dtype(), t.device());
                  };
                  Tensor gradients[] = {like(kept.q), like(kept.k), like(kept.v)};
                  ops::attention_grad(dy, kept, options, gradients[0], gradients[1], gradients[2]);
                  for (int i = 0; i < 3; ++i)
                    if (out.wanted(i)) out.give(i, gradients[i]);
                });
}

Variable self_attention(const Variable& qkv, const AttentionOptions& options) {
  BRIGADE_CHECK(qkv.dims() == 5 && qkv.size(2) == 3, "self_attention: needs qkv [N, T, 3, H, D]; got ",
                qkv.value());
  const Tensor& x = qkv.value();
  const ops::Attended forward = ops::attention(part(x, 0), part(x, 1), part(x, 2), options);
  return record("self_attention", forward.out.transpose(1, 2), {qkv},
                [kept = SavedTensor(x), out_kept = SavedTensor(forward.out), log_sums = forward.log_sums,
                 options](const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  const Tensor qkv_value = out.load(kept);
                  const Tensor dx = Tensor::empty(qkv_value.shape(), qkv_value.dtype(), qkv_value.device());
                  Tensor dq = part(dx, 0), dk = part(dx, 1), dv = part(dx, 2);
                  ops::attention_grad(dy.transpose(1, 2),
                                      {part(qkv_value, 0), part(qkv_value, 1), part(qkv_value, 2),
                                       out.load(out_kept), log_sums},
                                      options, dq, dk, dv);
                  out.give(0, dx);
                });
}

}  // namespace brigade
