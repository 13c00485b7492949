// SPDX-License-Identifier: MIT
// kernels/reference/classification.cpp - softmax over the last dim, and the cross entropy on top of it.
//   p = softmax(x):  p_i = e^(x_i - m) / sum_j e^(x_j - m), m = max x (so that nothing overflows)
#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

// x [.., D] as [rows, D].
Tensor rows_of(const Tensor& x) {
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < x.dims(); ++d) rows *= x.shape()[d];
  return x.view({rows, x.size(-1)});
}

// log(sum_j e^(x_j)) of row r.
double log_sum_exp(const Tensor& x, std::int64_t r) {
  double largest = -INFINITY, sum = 0;
  for (std::int64_t i = 0; i < x.size(1); ++i) largest = std::max(largest, get(x, r, i));
  for (std::int64_t i = 0; i < x.size(1); ++i) sum += std::exp(get(x, r, i) - largest);
  return largest + std::log(sum);
}

}  // namespace

void softmax(const Tensor& x, Tensor& out) {
  const Tensor in = rows_of(x), to = rows_of(out);
  for (std::int64_t r = 0; r < in.size(0); ++r) {
    const double total = log_sum_exp(in, r);
    for (std::int64_t i = 0; i < in.size(1); ++i) set(to, std::exp(get(in, r, i) - total), r, i);
  }
}

void log_softmax(const Tensor& x, Tensor& out) {
  const Tensor in = rows_of(x), to = rows_of(out);
  for (std::int64_t r = 0; r < in.size(0); ++r) {
    const double total = log_sum_exp(in, r);
    for (std::int64_t i = 0; i < in.size(1); ++i) set(to, get(in, r, i) - total, r, i);
  }
}

// y = softmax(x)  =>  dx = y (dy - sum(dy y))
void softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx) {
  const Tensor d = rows_of(dy), p = rows_of(y), to = rows_of(dx);
  for (std::int64_t r = 0; r < p.size(0); ++r) {
    double dot = 0;
    for (std::int64_t i = 0; i < p.size(1); ++i) dot += get(d, r, i) * get(p, r, i);
    for (std::int64_t i = 0; i < p.size(1); ++i) set(to, get(p, r, i) * (get(d, r, i) - dot), r, i);
  }
}

// y = log_softmax(x)  =>  dx = dy - e^y sum(dy)
void log_softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx) {
  const Tensor d = rows_of(dy), lp = rows_of(y), to = rows_of(dx);
  for (std::int64_t r = 0; r < lp.size(0); ++r) {
    double sum = 0;
    for (std::int64_t i = 0; i < lp.size(1); ++i) sum += get(d, r, i);
    for (std::int64_t i = 0; i < lp.size(1); ++i) set(to, get(d, r, i) - std::exp(get(lp, r, i)) * sum, r, i);
  }
}

void cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing, std::int64_t ignore_index,
                   Tensor& loss, Tensor& log_probs) {
  log_softmax(logits, log_probs);
  const std::int64_t classes = logits.size(1);
  double total = 0, counted = 0;
  for (std::int64_t r = 0; r < logits.size(0); ++r) {
    const std::int64_t label = labels.data<std::int64_t>()[r * labels.stride(0)];
    if (label == ignore_index) continue;
    double sum = 0;
    for (std::int64_t c = 0; smoothing != 0 && c < classes; ++c) sum += get(log_probs, r, c);
    total -= (1 - smoothing) * get(log_probs, r, label) + smoothing / static_cast<double>(classes) * sum;
    ++counted;
  }
  // If every row is ignored this is 0 / 0: the mean of nothing is a NaN, as in PyTorch.
  const Tensor mean = loss.view({1});
  set(mean, total / counted, 0);
}

// The loss is the mean over counted rows of -sum_c target_c log p_c
//   =>  dlogits = (p - target) dloss / counted
void cross_entropy_grad(const Tensor& dloss, const Tensor& log_probs, const Tensor& labels, double smoothing,
                        std::int64_t ignore_index, Tensor& dlogits) {
  const std::int64_t rows = log_probs.size(0), classes = log_probs.size(1);
  const auto label = [&](std::int64_t r) { return labels.data<std::int64_t>()[r * labels.stride(0)]; };
  const Tensor factor = dloss.view({1});
  double counted = 0;
  for (std::int64_t r = 0; r < rows; ++r) counted += label(r) != ignore_index;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < classes; ++c) {
      const double target = (label(r) == c ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      const double slope = (std::exp(get(log_probs, r, c)) - target) * get(factor, 0) / counted;
      set(dlogits, label(r) == ignore_index ? 0 : slope, r, c);
    }
}

}  // namespace brigade::reference
