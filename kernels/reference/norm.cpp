// SPDX-License-Identifier: MIT
// kernels/reference/norm.cpp - batch norm (Ioffe and Szegedy, 2015) and layer norm (Ba et al., 2016).
// Both standardise groups of values: those of one channel, or those of one row. With n values in a group:
//   xhat = (x - mean) invstd,   y = gamma xhat + beta,   g = dy gamma
//   dx = invstd (g - sum(g) / n - xhat sum(g xhat) / n),   dgamma = sum(dy xhat),   dbeta = sum(dy)
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

struct Moments {
  double mean, variance;  // Biased: divided by n.
};

// Two passes: the variance of values with a large mean must not be a difference of two large sums.
template <class F>
Moments moments(std::int64_t n, F&& value) {
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += value(i);
  const double mean = sum / static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i) squares += (value(i) - mean) * (value(i) - mean);
  return {mean, squares / static_cast<double>(n)};
}

// Batch norm's x as [C, N, H, W]; one channel is then select(0, c), [N, H, W].
Tensor by_channel(const Tensor& x) {
  return x.dims() == 4 ? x.permute({1, 0, 2, 3}) : x.transpose(0, 1).unsqueeze(-1).unsqueeze(-1);
}

// Element i (row-major) of the channel [N, H, W] as an index.
double value(const Tensor& channel, std::int64_t i) {
  const std::int64_t h = channel.size(1), w = channel.size(2);
  return get(channel, i / (h * w), i / w % h, i % w);
}
void write(const Tensor& channel, std::int64_t i, double to) {
  const std::int64_t h = channel.size(1), w = channel.size(2);
  set(channel, to, i / (h * w), i / w % h, i % w);
}

// How forward ends. `residual` is a channel, or undefined.
double ended(double value_of_bn, const BatchNormTail& tail, const Tensor& residual, std::int64_t i) {
  const double sum = residual.defined() ? value_of_bn + value(residual, i) : value_of_bn;
  return tail.relu && sum < 0 ? 0 : sum;
}
Tensor residual_of(const BatchNormTail& tail, std::int64_t c) {
  return tail.residual.defined() ? by_channel(tail.residual).select(0, c) : Tensor();
}

// Whether the ReLU let element i of channel c through, or there was none.
bool open(const BatchNormForward& f, std::int64_t c, std::int64_t i) {
  if (f.y.defined()) return value(by_channel(f.y).select(0, c), i) > 0;
  if (!f.shift.defined()) return true;
  const double x = value(by_channel(f.x).select(0, c), i);
  return (x - get(f.mean, c)) * get(f.gamma, c) * get(f.invstd, c) + get(f.shift, c) > 0;
}

}  // namespace

void batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, double momentum,
                      double epsilon, const BatchNormTail& tail, const ChannelMoments& known,
                      Tensor& running_mean, Tensor& running_var, Tensor& out, Tensor& mean, Tensor& invstd,
                      Tensor& shift) {
  const Tensor xs = by_channel(x), ys = by_channel(out);
  for (std::int64_t c = 0; c < xs.size(0); ++c) {
    const Tensor in = xs.select(0, c), to = ys.select(0, c), added = residual_of(tail, c);
    const std::int64_t n = in.numel();
    const Moments m = known.mean.defined()
                          ? Moments{get(known.mean, c), get(known.squares, c) / static_cast<double>(n)}
                          : moments(n, [&](std::int64_t i) { return value(in, i); });
    const double scale = get(gamma, c) / std::sqrt(m.variance + epsilon);
    for (std::int64_t i = 0; i < n; ++i)
      write(to, i, ended((value(in, i) - m.mean) * scale + get(beta, c), tail, added, i));
    set(mean, m.mean, c);
    set(invstd, 1 / std::sqrt(m.variance + epsilon), c);
    set(shift, get(beta, c) - (m.mean - get(mean, c)) * scale, c);
    if (running_mean.defined()) {
      const double unbiased = m.variance * static_cast<double>(n) / static_cast<double>(n - 1);
      set(running_mean, (1 - momentum) * get(running_mean, c) + momentum * m.mean, c);
      set(running_var, (1 - momentum) * get(running_var, c) + momentum * unbiased, c);
    }
  }
}

void batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                     const Tensor& running_var, double epsilon, const BatchNormTail& tail, Tensor& out) {
  const Tensor xs = by_channel(x), ys = by_channel(out);
  for (std::int64_t c = 0; c < xs.size(0); ++c) {
    const Tensor in = xs.select(0, c), to = ys.select(0, c), added = residual_of(tail, c);
    const double scale = get(gamma, c) / std::sqrt(get(running_var, c) + epsilon);
    for (std::int64_t i = 0; i < in.numel(); ++i)
      write(to, i, ended((value(in, i) - get(running_mean, c)) * scale + get(beta, c), tail, added, i));
  }
}

void batch_norm_moments(const Tensor& x, Tensor& mean, Tensor& squares) {
  const Tensor xs = by_channel(x);
  for (std::int64_t c = 0; c < xs.size(0); ++c) {
    const Tensor in = xs.select(0, c);
    const std::int64_t n = in.numel();
    const Moments m = n == 0 ? Moments{0, 0} : moments(n, [&](std::int64_t i) { return value(in, i); });
    set(mean, m.mean, c);
    set(squares, m.variance * static_cast<double>(n), c);
  }
}

void batch_norm_grad_sums(const Tensor& dy, const BatchNormForward& forward, Tensor& dz, Tensor& dgamma,
                          Tensor& dbeta) {
  const Tensor xs = by_channel(forward.x), dys = by_channel(dy);
  for (std::int64_t c = 0; c < xs.size(0); ++c) {
    const Tensor in = xs.select(0, c), d = dys.select(0, c);
    double sum = 0, dot = 0;
    for (std::int64_t i = 0; i < in.numel(); ++i) {
      const double through = open(forward, c, i) ? value(d, i) : 0;
      if (forward.y.defined()) write(by_channel(dz).select(0, c), i, through);
      sum += through;
      dot += through * (value(in, i) - get(forward.mean, c)) * get(forward.invstd, c);
    }
    set(dgamma, dot, c);
    set(dbeta, sum, c);
  }
}

void batch_norm_grad_input(const Tensor& dy, const BatchNormForward& forward, const Tensor& dgamma,
                           const Tensor& dbeta, double count, Tensor& dx) {
  const Tensor xs = by_channel(forward.x), dys = by_channel(dy), dxs = by_channel(dx);
  for (std::int64_t c = 0; c < xs.size(0); ++c) {
    const Tensor in = xs.select(0, c), d = dys.select(0, c), to = dxs.select(0, c);
    const double scale = get(forward.invstd, c);
    for (std::int64_t i = 0; i < in.numel(); ++i) {
      const double through = forward.y.defined() || open(forward, c, i) ? value(d, i) : 0;
      const double xhat = (value(in, i) - get(forward.mean, c)) * scale;
      const double centred = through - get(dbeta, c) / count - xhat * get(dgamma, c) / count;
      write(to, i, get(forward.gamma, c) * scale * centred);
    }
  }
}

void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon, Tensor& out,
                Tensor& mean, Tensor& invstd) {
  const std::int64_t width = x.size(-1), rows = mean.numel();
  const Tensor in = x.view({rows, width}), to = out.view({rows, width});
  for (std::int64_t r = 0; r < rows; ++r) {
    const Moments m = moments(width, [&](std::int64_t i) { return get(in, r, i); });
    const double scale = 1 / std::sqrt(m.variance + epsilon);
    for (std::int64_t i = 0; i < width; ++i)
      set(to, get(gamma, i) * (get(in, r, i) - m.mean) * scale + get(beta, i), r, i);
    set(mean, m.mean, r);
    set(invstd, scale, r);
  }
}

void layer_norm_grad(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                     const Tensor& invstd, Tensor& dx, Tensor& dgamma, Tensor& dbeta) {
  const std::int64_t width = x.size(-1), rows = mean.numel();
  const Tensor in = x.view({rows, width}), d = dy.view({rows, width}), to = dx.view({rows, width});
  Tensor scales = Tensor::zeros({width}, DType::f64), shifts = Tensor::zeros({width}, DType::f64);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto xhat = [&](std::int64_t i) { return (get(in, r, i) - get(mean, r)) * get(invstd, r); };
    double sum = 0, dot = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const double g = get(d, r, i) * get(gamma, i);
      sum += g;
      dot += g * xhat(i);
      add_to(scales, get(d, r, i) * xhat(i), i);
      add_to(shifts, get(d, r, i), i);
    }
    const auto count = static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i)
      set(to, get(invstd, r) * (get(d, r, i) * get(gamma, i) - sum / count - xhat(i) * dot / count), r, i);
  }
  copy(scales, dgamma);
  copy(shifts, dbeta);
}

}  // namespace brigade::reference
