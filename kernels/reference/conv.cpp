// SPDX-License-Identifier: MIT
// kernels/reference/conv.cpp - convolution (cross-correlation) from its definition:
//   y[n, o, i, j] = b[o] + sum over c, p, q of x[n, c, i s - pad + p dil, j s - pad + q dil] w[o, c, p, q]
// Its two gradients visit the same products and hand each to the other factor's place.
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

struct Product {
  std::int64_t n, o, i, j;       // Place in y.
  std::int64_t x_channel, h, v;  // Place in x: [n, x_channel, h, v].
  std::int64_t w_channel, p, q;  // Place in w: [o, w_channel, p, q].
};

// Calls f(product) for every product that does not fall into the padding.
template <class F>
void for_each_product(const Shape& x, const Shape& y, const Window& window, F&& f) {
  const std::int64_t group_in = x[1] / window.groups, group_out = y[1] / window.groups;
  for_each_index(y, [&](const Dims& at) {
    const std::int64_t first_channel = at[1] / group_out * group_in;
    for_each_index({group_in, window.kernel[0], window.kernel[1]}, [&](const Dims& k) {
      const std::int64_t h = at[2] * window.stride[0] - window.padding[0] + k[1] * window.dilation[0];
      const std::int64_t v = at[3] * window.stride[1] - window.padding[1] + k[2] * window.dilation[1];
      if (h < 0 || h >= x[2] || v < 0 || v >= x[3]) return;
      f(Product{at[0], at[1], at[2], at[3], first_channel + k[0], h, v, k[0], k[1], k[2]});
    });
  });
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  const Tensor sums = Tensor::zeros(out.shape(), DType::f64);
  for_each_product(x.shape(), out.shape(), window, [&](const Product& p) {
    add_to(sums, get(x, p.n, p.x_channel, p.h, p.v) * get(w, p.o, p.w_channel, p.p, p.q), p.n, p.o, p.i, p.j);
  });
  for_each_index(out.shape(), [&](const Dims& i) {
    const double shift = bias.defined() ? get(bias, i[1]) : 0;
    set(out, get(sums, i[0], i[1], i[2], i[3]) + shift, i[0], i[1], i[2], i[3]);
  });
}

void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments&) {
  conv2d(x, w, bias, window, out);
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, double beta, Tensor& dx) {
  Tensor sums = Tensor::zeros(dx.shape(), DType::f64);
  if (beta != 0) copy(dx, sums);
  for_each_product(dx.shape(), dy.shape(), window, [&](const Product& p) {
    add_to(sums, get(dy, p.n, p.o, p.i, p.j) * get(w, p.o, p.w_channel, p.p, p.q), p.n, p.x_channel, p.h,
           p.v);
  });
  copy(sums, dx);
}

void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  Tensor sums = Tensor::zeros(dw.shape(), DType::f64);
  for_each_product(x.shape(), dy.shape(), window, [&](const Product& p) {
    add_to(sums, get(dy, p.n, p.o, p.i, p.j) * get(x, p.n, p.x_channel, p.h, p.v), p.o, p.w_channel, p.p,
           p.q);
  });
  copy(sums, dw);
}

}  // namespace brigade::reference
