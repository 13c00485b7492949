// SPDX-License-Identifier: MIT
// kernels/cpu/layer_norm.cpp - layer norm, a row at a time: a row stays in the first cache while it is
// read again. Formulas: kernels/reference/norm.cpp.
#include <cmath>

#include "kernels/cpu/block_sums.h"
#include "kernels/cpu/structured.h"
#include "kernels/ops.h"

namespace brigade::cpu {

namespace {

std::int64_t row_grain(std::int64_t width) {
  return std::max<std::int64_t>(4096 / std::max<std::int64_t>(width, 1), 1);
}

}  // namespace

void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon, Tensor& out,
                Tensor& mean, Tensor& invstd) {
  const std::int64_t width = x.size(-1), rows = mean.numel();
  const Tensor input = ops::contiguous(x);
  dispatch_floating("layer_norm", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const S *scale = gamma.data<S>(), *shift = beta.data<S>();
    S *means = mean.data<S>(), *inverses = invstd.data<S>();
    const T* from = input.data<T>();
    T* to = out.data<T>();
    parallel_for(rows, row_grain(width), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* in = from + r * width;
        T* __restrict y = to + r * width;
        // The second pass is centred, so that a large mean does not cancel; its
        // own sum corrects the first mean.
        const Pair<S> sums = sum_block_line<S>(0, width, [=](std::int64_t i) {
          return Pair<S>{static_cast<S>(in[i]), S(0)};
        });
        const S m = sums.first / static_cast<S>(width);
        const Pair<S> centred = sum_block_line<S>(0, width, [=](std::int64_t i) {
          const S d = static_cast<S>(in[i]) - m;
          return Pair<S>{d, d * d};
        });
        const double n = static_cast<double>(width), rest = static_cast<double>(centred.first) / n;
        const double variance = static_cast<double>(centred.second) / n - rest * rest;
        const S inverse = static_cast<S>(1 / std::sqrt(std::max(variance, 0.0) + epsilon));
        const S remainder = static_cast<S>(rest);
        for (std::int64_t i = 0; i < width; ++i)
          y[i] = static_cast<T>(((static_cast<S>(in[i]) - m) - remainder) * inverse * scale[i] + shift[i]);
        means[r] = static_cast<S>(static_cast<double>(m) + rest);
        inverses[r] = inverse;
      }
    });
  });
}

void layer_norm_grad(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                     const Tensor& invstd, Tensor& dx, Tensor& dgamma, Tensor& dbeta) {
  const std::int64_t width = x.size(-1), rows = mean.numel();
  const Tensor input = ops::contiguous(x), gradient = ops::contiguous(dy);
  dispatch_floating("layer_norm_grad", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const S *scale = gamma.data<S>(), *means = mean.data<S>(), *inverses = invstd.data<S>();
    const T *xs = input.data<T>(), *dys = gradient.data<T>();
    T* dxs = dx.data<T>();
    parallel_for(rows, row_grain(width), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T *in = xs + r * width, *d = dys + r * width;
        T* __restrict to = dxs + r * width;
        const S m = means[r], inverse = inverses[r];
        const Pair<S> sums = sum_block_line<S>(0, width, [=](std::int64_t i) {
          const S g = static_cast<S>(d[i]) * scale[i];
          return Pair<S>{g, g * ((static_cast<S>(in[i]) - m) * inverse)};
        });
        const S shift = sums.first / static_cast<S>(width), slope = sums.second / static_cast<S>(width);
        for (std::int64_t i = 0; i < width; ++i) {
          const S xhat = (static_cast<S>(in[i]) - m) * inverse;
          to[i] = static_cast<T>(inverse * (static_cast<S>(d[i]) * scale[i] - shift - xhat * slope));
        }
      }
    });
    const auto sums = sum_columns<S>(rows, width, [=](std::int64_t r, std::int64_t c) {
      const S d = static_cast<S>(dys[r * width + c]);
      return Pair<S>{d * ((static_cast<S>(xs[r * width + c]) - means[r]) * inverses[r]), d};
    });
    for (std::size_t c = 0; c < sums.size(); ++c) {
      dgamma.data<S>()[c] = static_cast<S>(sums[c].first);
      dbeta.data<S>()[c] = static_cast<S>(sums[c].second);
    }
  });
}

}  // namespace brigade::cpu
