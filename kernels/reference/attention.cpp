// SPDX-License-Identifier: MIT
// kernels/reference/attention.cpp - attention as it is written down: scores, softmax, weighted sum.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

// How many keys query t sees.
std::int64_t visible(const Tensor& k, const AttentionOptions& options, std::int64_t t) {
  return options.causal ? t + 1 : k.size(2);
}

double dot(const Tensor& a, const Tensor& b, std::int64_t n, std::int64_t h, std::int64_t t, std::int64_t s) {
  double sum = 0;
  for (std::int64_t d = 0; d < a.size(3); ++d) sum += get(a, n, h, t, d) * get(b, n, h, s, d);
  return sum;
}

// Calls f(n, h, t) for every row of q.
template <class F>
void for_each_query(const Tensor& q, const F& f) {
  for (std::int64_t n = 0; n < q.size(0); ++n)
    for (std::int64_t h = 0; h < q.size(1); ++h)
      for (std::int64_t t = 0; t < q.size(2); ++t) f(n, h, t);
}

}  // namespace

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
               Tensor& out, Tensor& log_sums) {
  for_each_query(q, [&](std::int64_t n, std::int64_t h, std::int64_t t) {
    std::vector<double> scores;
    for (std::int64_t s = 0; s < visible(k, options, t); ++s)
      scores.push_back(options.scale * dot(q, k, n, h, t, s));
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - largest);
    const double log_sum = largest + std::log(sum);
    set(log_sums, log_sum, n, h, t);
    for (std::int64_t d = 0; d < q.size(3); ++d) {
      double mean = 0;
      for (std::size_t s = 0; s < scores.size(); ++s)
        mean += std::exp(scores[s] - log_sum) * get(v, n, h, static_cast<std::int64_t>(s), d);
      set(out, mean, n, h, t, d);
    }
  });
}

// out = p v, p = softmax(s), s = scale q kᵀ   =>   dv = pᵀ dout,   dp = dout vᵀ,   ds = p (dp - sum over keys of dp p),
// where that sum is dout · out;   dq = scale ds k,   dk = scale dsᵀ q
void attention_grad(const Tensor& dout, const AttentionForward& forward, const AttentionOptions& options,
                    Tensor& dq, Tensor& dk, Tensor& dv) {
  const auto& [q, k, v, out, log_sums] = forward;
  const std::int64_t width = q.size(3);
  std::vector<double> sums_k(static_cast<std::size_t>(k.numel())), sums_v(sums_k.size());
  const auto flat = [&k = k](std::int64_t n, std::int64_t h, std::int64_t s, std::int64_t d) {
    return static_cast<std::size_t>(((n * k.size(1) + h) * k.size(2) + s) * k.size(3) + d);
  };
  for_each_query(q, [&, &q = q, &k = k, &v = v, &out = out, &log_sums = log_sums](
                        std::int64_t n, std::int64_t h, std::int64_t t) {
    const double delta = dot(dout, out, n, h, t, t);
    std::vector<double> sums_q(static_cast<std::size_t>(width));
    for (std::int64_t s = 0; s < visible(k, options, t); ++s) {
      const double p = std::exp(options.scale * dot(q, k, n, h, t, s) - get(log_sums, n, h, t));
      const double slope = options.scale * p * (dot(dout, v, n, h, t, s) - delta);
      for (std::int64_t d = 0; d < width; ++d) {
        sums_q[static_cast<std::size_t>(d)] += slope * get(k, n, h, s, d);
        sums_k[flat(n, h, s, d)] += slope * get(q, n, h, t, d);
        sums_v[flat(n, h, s, d)] += p * get(dout, n, h, t, d);
      }
    }
    for (std::int64_t d = 0; d < width; ++d) set(dq, sums_q[static_cast<std::size_t>(d)], n, h, t, d);
  });
  for_each_query(k, [&](std::int64_t n, std::int64_t h, std::int64_t s) {
    for (std::int64_t d = 0; d < width; ++d) {
      set(dk, sums_k[flat(n, h, s, d)], n, h, s, d);
      set(dv, sums_v[flat(n, h, s, d)], n, h, s, d);
    }
  });
}

}  // namespace brigade::reference
