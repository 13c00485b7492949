// SPDX-License-Identifier: MIT
// kernels/cuda/attention.cpp - attention over strided heads.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {
namespace {

device::HeadRows heads_of(const Tensor& t) {
  return {.at = t.raw(), .stride = {t.stride(0), t.stride(1), t.stride(2)}};
}

device::AttentionSize size_of(const Tensor& q, const Tensor& k) {
  return {
      .batch = q.size(0), .heads = q.size(1), .queries = q.size(2), .keys = k.size(2), .width = q.size(3)};
}

}  // namespace

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
               Tensor& out, Tensor& log_sums) {
  launched(device::attention(q.dtype(), size_of(q, k), options, heads_of(q), heads_of(k), heads_of(v),
                             heads_of(out), log_sums.raw(), stream_of(q)),
           "attention");
}

void attention_grad(const Tensor& dout, const AttentionForward& forward, const AttentionOptions& options,
                    Tensor& dq, Tensor& dk, Tensor& dv) {
  const auto& [q, k, v, out, log_sums] = forward;
  const Tensor deltas = Tensor::empty(log_sums.shape(), log_sums.dtype(), log_sums.device());
  launched(device::attention_grad(q.dtype(), size_of(q, k), options,
                                  {.q = heads_of(q),
                                   .k = heads_of(k),
                                   .v = heads_of(v),
                                   .out = heads_of(out),
                                   .dout = heads_of(dout),
                                   .dq = heads_of(dq),
                                   .dk = heads_of(dk),
                                   .dv = heads_of(dv),
                                   .log_sums = log_sums.raw(),
                                   .deltas = deltas.raw()},
                                  stream_of(q)),
           "attention_grad");
}

}  // namespace brigade::cuda
