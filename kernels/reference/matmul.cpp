// SPDX-License-Identifier: MIT
// kernels/reference/matmul.cpp - matrix products as three nested loops.
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {

void matmul(const Tensor& a, const Tensor& b, double beta, Tensor& out) {
  const int dims = out.dims();
  const std::int64_t m = out.size(-2), n = out.size(-1), k = a.size(-1);
  Shape batch = out.shape();
  batch.erase(dims - 1);
  batch.erase(dims - 2);
  for_each_index(batch, [&](const Dims& i) {
    Tensor x = a, y = b, z = out;
    for (int d = 0; d < batch.size(); ++d) {
      x = x.select(0, i[d]);
      y = y.select(0, i[d]);
      z = z.select(0, i[d]);
    }
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = beta == 0 ? 0 : beta * get(z, r, c);
        for (std::int64_t j = 0; j < k; ++j) sum += get(x, r, j) * get(y, j, c);
        set(z, sum, r, c);
      }
  });
}

void linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation then, Tensor& out) {
  for (std::int64_t r = 0; r < x.size(0); ++r)
    for (std::int64_t o = 0; o < w.size(0); ++o) {
      double sum = bias.defined() ? get(bias, o) : 0;
      for (std::int64_t i = 0; i < w.size(1); ++i) sum += get(x, r, i) * get(w, o, i);
      set(out, then == Activation::relu && sum < 0 ? 0 : sum, r, o);  // A NaN stays one.
    }
}

// y = x wᵀ + b   =>   dx = dy w,   dw = dyᵀ x,   db = sum over rows of dy
void linear_grad_input(const Tensor& dy, const Tensor& w, Tensor& dx) { matmul(dy, w, 0, dx); }

void linear_grad_weight(const Tensor& dy, const Tensor& x, Tensor& dw) {
  matmul(dy.transpose(0, 1), x, 0, dw);
}

void bias_grad(const Tensor& dy, Tensor& db) {
  const bool spatial = dy.dims() == 4;
  const std::int64_t height = spatial ? dy.size(2) : 1, width = spatial ? dy.size(3) : 1;
  for (std::int64_t c = 0; c < dy.size(1); ++c) {
    double sum = 0;
    for (std::int64_t n = 0; n < dy.size(0); ++n)
      for (std::int64_t h = 0; h < height; ++h)
        for (std::int64_t v = 0; v < width; ++v) sum += spatial ? get(dy, n, c, h, v) : get(dy, n, c);
    set(db, sum, c);
  }
}

}  // namespace brigade::reference
