// SPDX-License-Identifier: MIT
// tests/fake_gpu/cudnn_loops.h - convolution as plain loops over tensors of any dtype in both formats: what the
// emulated cuDNN computes. Sums are double. Read next: tests/fake_gpu/cudnn.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "tests/fake_gpu/numbers.h"

namespace fake_gpu {

using Sizes = std::array<std::int64_t, 4>;  // N, C, H, W or O, C / groups, kH, kW

struct ConvGeometry {
  Sizes x, w, y;
  std::array<std::int64_t, 2> padding, stride, dilation;
  std::int64_t groups;
};

/// Where the element at (a, b, c, d) of four sizes lies.
inline std::int64_t position(const Sizes& s, bool channels_last, std::int64_t a, std::int64_t b,
                             std::int64_t c, std::int64_t d) {
  return channels_last ? ((a * s[2] + c) * s[3] + d) * s[1] + b : ((a * s[1] + b) * s[2] + c) * s[3] + d;
}

template <class F>
void for_each_position(const Sizes& s, const F& f) {
  for (std::int64_t a = 0; a < s[0]; ++a)
    for (std::int64_t b = 0; b < s[1]; ++b)
      for (std::int64_t c = 0; c < s[2]; ++c)
        for (std::int64_t d = 0; d < s[3]; ++d) f(a, b, c, d);
}

/// As doubles in the order of `s`.
inline std::vector<double> unpacked(const void* from, DType dtype, const Sizes& s, bool channels_last) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]));
  for_each_position(s, [&](auto a, auto b, auto c, auto d) {
    values.push_back(load(from, dtype, position(s, channels_last, a, b, c, d)));
  });
  return values;
}

/// to = alpha values + beta to
inline void pack(const std::vector<double>& values, double alpha, double beta, void* to, DType dtype,
                 const Sizes& s, bool channels_last) {
  std::size_t i = 0;
  for_each_position(s, [&](auto a, auto b, auto c, auto d) {
    const std::int64_t at = position(s, channels_last, a, b, c, d);
    store(to, dtype, at, alpha * values[i++] + (beta == 0 ? 0 : beta * load(to, dtype, at)));
  });
}

/// Calls line(xi, wi, yi, step, count): y at yi + i meets x at xi + i step and w at wi, for i < count.
template <class Line>
void for_each_product(const ConvGeometry& g, const Line& line) {
  const std::int64_t in = g.w[1], out = g.y[1] / g.groups;
  for (std::int64_t n = 0; n < g.y[0]; ++n)
    for (std::int64_t o = 0; o < g.y[1]; ++o)
      for (std::int64_t c = 0; c < in; ++c)
        for (std::int64_t kh = 0; kh < g.w[2]; ++kh)
          for (std::int64_t kw = 0; kw < g.w[3]; ++kw) {
            const std::int64_t wi = ((o * in + c) * g.w[2] + kh) * g.w[3] + kw;
            const std::int64_t left = kw * g.dilation[1] - g.padding[1], step = g.stride[1];
            // The columns of y whose x lies inside the image.
            const std::int64_t first = left < 0 ? (-left + step - 1) / step : 0;
            const std::int64_t last =
                std::min(g.y[3], g.x[3] - 1 < left ? 0 : (g.x[3] - 1 - left) / step + 1);
            if (first >= last) continue;
            for (std::int64_t h = 0; h < g.y[2]; ++h) {
              const std::int64_t row = h * g.stride[0] + kh * g.dilation[0] - g.padding[0];
              if (row < 0 || row >= g.x[2]) continue;
              const std::int64_t channel = o / out * in + c;
              const std::int64_t xi = ((n * g.x[1] + channel) * g.x[2] + row) * g.x[3] + left + first * step;
              line(xi, wi, ((n * g.y[1] + o) * g.y[2] + h) * g.y[3] + first, step, last - first);
            }
          }
}

inline void conv_forward(const ConvGeometry& g, const double* x, const double* w, double* y) {
  for_each_product(g, [=](auto xi, auto wi, auto yi, auto step, auto count) {
    for (std::int64_t i = 0; i < count; ++i) y[yi + i] += x[xi + i * step] * w[wi];
  });
}
inline void conv_grad_input(const ConvGeometry& g, const double* dy, const double* w, double* dx) {
  for_each_product(g, [=](auto xi, auto wi, auto yi, auto step, auto count) {
    for (std::int64_t i = 0; i < count; ++i) dx[xi + i * step] += dy[yi + i] * w[wi];
  });
}
inline void conv_grad_weight(const ConvGeometry& g, const double* dy, const double* x, double* dw) {
  for_each_product(g, [=](auto xi, auto wi, auto yi, auto step, auto count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += x[xi + i * step] * dy[yi + i];
    dw[wi] += sum;
  });
}

}  // namespace fake_gpu
