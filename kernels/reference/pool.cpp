// SPDX-License-Identifier: MIT
// kernels/reference/pool.cpp - pooling, one output element at a time.
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

// Calls f(h, w) for the places of x (without padding) under output (i, j), rows first.
template <class F>
void for_each_under(const Window& k, std::int64_t i, std::int64_t j, std::int64_t height, std::int64_t width,
                    F&& f) {
  for (std::int64_t p = 0; p < k.kernel[0]; ++p)
    for (std::int64_t q = 0; q < k.kernel[1]; ++q) {
      const std::int64_t h = i * k.stride[0] - k.padding[0] + p * k.dilation[0];
      const std::int64_t w = j * k.stride[1] - k.padding[1] + q * k.dilation[1];
      if (h >= 0 && h < height && w >= 0 && w < width) f(h, w);
    }
}

// The adaptive window of output i: [floor(i in / out), ceil((i + 1) in / out)).
std::int64_t first(std::int64_t i, std::int64_t in, std::int64_t out) { return i * in / out; }
std::int64_t last(std::int64_t i, std::int64_t in, std::int64_t out) {
  return ((i + 1) * in + out - 1) / out;
}

}  // namespace

void max_pool2d(const Tensor& x, const Window& window, Tensor& out, Tensor& index) {
  for_each_index(out.shape(), [&](const Dims& o) {
    double best = -INFINITY;
    std::int64_t at = -1;
    for_each_under(window, o[2], o[3], x.size(2), x.size(3), [&](std::int64_t h, std::int64_t w) {
      const double value = get(x, o[0], o[1], h, w);
      // A NaN wins; of equals the first stays; the very first is taken even if it is -inf.
      if (at < 0 || value > best || (std::isnan(value) && !std::isnan(best))) {
        best = value;
        at = h * x.size(3) + w;
      }
    });
    set(out, best, o[0], o[1], o[2], o[3]);
    set(index, static_cast<double>(at), o[0], o[1], o[2], o[3]);
  });
}

void max_pool2d_grad(const Tensor& dy, const Tensor& index, const Window&, Tensor& dx) {
  Tensor sums = Tensor::zeros(dx.shape(), DType::f64);
  for_each_index(dy.shape(), [&](const Dims& o) {
    const auto at = static_cast<std::int64_t>(get(index, o[0], o[1], o[2], o[3]));
    add_to(sums, get(dy, o[0], o[1], o[2], o[3]), o[0], o[1], at / dx.size(3), at % dx.size(3));
  });
  copy(sums, dx);
}

void avg_pool2d(const Tensor& x, const Window& window, Tensor& out) {
  const auto area = static_cast<double>(window.kernel[0] * window.kernel[1]);
  for_each_index(out.shape(), [&](const Dims& o) {
    double sum = 0;
    for_each_under(window, o[2], o[3], x.size(2), x.size(3),
                   [&](std::int64_t h, std::int64_t w) { sum += get(x, o[0], o[1], h, w); });
    set(out, sum / area, o[0], o[1], o[2], o[3]);
  });
}

void avg_pool2d_grad(const Tensor& dy, const Window& window, Tensor& dx) {
  const auto area = static_cast<double>(window.kernel[0] * window.kernel[1]);
  Tensor sums = Tensor::zeros(dx.shape(), DType::f64);
  for_each_index(dy.shape(), [&](const Dims& o) {
    const double share = get(dy, o[0], o[1], o[2], o[3]) / area;
    for_each_under(window, o[2], o[3], dx.size(2), dx.size(3),
                   [&](std::int64_t h, std::int64_t w) { add_to(sums, share, o[0], o[1], h, w); });
  });
  copy(sums, dx);
}

void adaptive_avg_pool2d(const Tensor& x, Tensor& out) {
  for_each_index(out.shape(), [&](const Dims& o) {
    const std::int64_t h0 = first(o[2], x.size(2), out.size(2)), h1 = last(o[2], x.size(2), out.size(2));
    const std::int64_t w0 = first(o[3], x.size(3), out.size(3)), w1 = last(o[3], x.size(3), out.size(3));
    double sum = 0;
    for (std::int64_t h = h0; h < h1; ++h)
      for (std::int64_t w = w0; w < w1; ++w) sum += get(x, o[0], o[1], h, w);
    set(out, sum / static_cast<double>((h1 - h0) * (w1 - w0)), o[0], o[1], o[2], o[3]);
  });
}

void adaptive_avg_pool2d_grad(const Tensor& dy, Tensor& dx) {
  Tensor sums = Tensor::zeros(dx.shape(), DType::f64);
  for_each_index(dy.shape(), [&](const Dims& o) {
    const std::int64_t h0 = first(o[2], dx.size(2), dy.size(2)), h1 = last(o[2], dx.size(2), dy.size(2));
    const std::int64_t w0 = first(o[3], dx.size(3), dy.size(3)), w1 = last(o[3], dx.size(3), dy.size(3));
    const double share = get(dy, o[0], o[1], o[2], o[3]) / static_cast<double>((h1 - h0) * (w1 - w0));
    for (std::int64_t h = h0; h < h1; ++h)
      for (std::int64_t w = w0; w < w1; ++w) add_to(sums, share, o[0], o[1], h, w);
  });
  copy(sums, dx);
}

}  // namespace brigade::reference
