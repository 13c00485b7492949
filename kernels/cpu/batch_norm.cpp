// SPDX-License-Identifier: MIT
// kernels/cpu/batch_norm.cpp - batch norm and the gradient of a bias: sums over everything but the
// channels. Bound by memory: forward and backward read their inputs twice and write once. Two
// layouts: rows [R, C] (channels_last or 2-D) vectorise along channels, planes [N, C, P] (contiguous)
// along pixels. Formulas: kernels/reference/norm.cpp.
#include <cmath>

#include "kernels/cpu/block_sums.h"
#include "kernels/cpu/structured.h"
#include "kernels/ops.h"

namespace brigade::cpu {

namespace {

struct Layout {
  std::int64_t images, channels, pixels;
  bool rows;  // Else planes.

  explicit Layout(const Tensor& t)
      : images(t.size(0)),
        channels(t.size(1)),
        pixels(t.dims() == 4 ? t.size(2) * t.size(3) : 1),
        rows(t.dims() == 2 || t.is_contiguous(MemoryFormat::channels_last)) {}
  std::int64_t count() const { return images * pixels; }
};

// `t` dense in the layout of the dense tensor `like`.
Tensor as_dense_as(const Tensor& t, const Tensor& like) {
  const bool rows = like.dims() == 4 && like.is_contiguous(MemoryFormat::channels_last);
  return ops::contiguous(t, rows ? MemoryFormat::channels_last : MemoryFormat::contiguous);
}

constexpr std::int64_t kLine = 4096;  // Pixels a block of a plane: 128 terms in each of 32 lanes.

// Mean and sum of squared deviations of `count` values, merged by Chan, Golub and LeVeque's formula (1979).
struct Moments {
  double count = 0, mean = 0, squares = 0;

  // Adds n values given by the sums of (x - shift) and (x - shift)². `shift` is one of the values, so a mean
  // that is large beside the deviations does not cancel.
  void add(double n, double shift, double sum, double sum_of_squares) {
    merge({n, shift + sum / n, std::max(sum_of_squares - sum * sum / n, 0.0)});
  }
  void merge(const Moments& m) {
    if (m.count == 0) return;
    const double total = count + m.count, delta = m.mean - mean;
    squares += m.squares + delta * delta * count * m.count / total;
    mean += delta * m.count / total;
    count = total;
  }
};

template <class T>
std::vector<Moments> moments(const T* x, const Layout& l) {
  using S = compute_t<T>;
  const std::int64_t channels = l.channels;
  if (l.rows) {
    const Chunks chunks{l.count()};
    std::vector<Moments> partial(static_cast<std::size_t>(chunks.count() * channels));
    chunks.for_each_block([&](std::int64_t chunk, std::int64_t begin, std::int64_t end) {
      std::vector<S> scratch(static_cast<std::size_t>(3 * channels));
      S *shift = scratch.data(), *sum = shift + channels, *squares = sum + channels;
      for (std::int64_t c = 0; c < channels; ++c) shift[c] = static_cast<S>(x[begin * channels + c]);
      const auto term = [=](std::int64_t r, std::int64_t c) {
        const S d = static_cast<S>(x[r * channels + c]) - shift[c];
        return Pair<S>{d, d * d};
      };
      sum_block_rows(begin, end, channels, term, sum, squares);
      for (std::int64_t c = 0; c < channels; ++c)
        partial[static_cast<std::size_t>(chunk * channels + c)].add(
            static_cast<double>(end - begin), static_cast<double>(shift[c]), static_cast<double>(sum[c]),
            static_cast<double>(squares[c]));
    });
    const auto width = static_cast<std::size_t>(channels);
    for (std::size_t i = width; i < partial.size(); ++i) partial[i % width].merge(partial[i]);
    partial.resize(width);
    return partial;
  }
  std::vector<Moments> result(static_cast<std::size_t>(channels));
  parallel_for(channels, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c)
      for (std::int64_t n = 0; n < l.images; ++n)
        for (std::int64_t p = 0; p < l.pixels; p += kLine) {
          const T* line = x + (n * channels + c) * l.pixels + p;
          const std::int64_t size = std::min(kLine, l.pixels - p);
          const S shift = static_cast<S>(line[0]);
          const Pair<S> sums = sum_block_line<S>(0, size, [=](std::int64_t i) {
            const S d = static_cast<S>(line[i]) - shift;
            return Pair<S>{d, d * d};
          });
          result[static_cast<std::size_t>(c)].add(static_cast<double>(size), static_cast<double>(shift),
                                                  static_cast<double>(sums.first),
                                                  static_cast<double>(sums.second));
        }
  });
  return result;
}

// Per channel the sum of term(i, c) over the elements i of channel c.
template <class S, class Term>
std::vector<Pair<double>> channel_sums(const Layout& l, const Term& term) {
  const std::int64_t channels = l.channels, pixels = l.pixels;
  if (l.rows)
    return sum_columns<S>(l.count(), channels,
                          [=](std::int64_t r, std::int64_t c) { return term(r * channels + c, c); });
  std::vector<Pair<double>> totals(static_cast<std::size_t>(channels));
  parallel_for(channels, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c)
      for (std::int64_t n = 0; n < l.images; ++n)
        for (std::int64_t p = 0; p < pixels; p += kLine) {
          const std::int64_t begin = (n * channels + c) * pixels + p;
          const Pair<S> sums = sum_block_line<S>(begin, begin + std::min(kLine, pixels - p),
                                                 [=](std::int64_t i) { return term(i, c); });
          totals[static_cast<std::size_t>(c)].first += static_cast<double>(sums.first);
          totals[static_cast<std::size_t>(c)].second += static_cast<double>(sums.second);
        }
  });
  return totals;
}

// to[i] = value(i, c) for every element i of channel c.
template <class T, class Value>
void for_each_element(const Layout& l, T* __restrict to, const Value& value) {
  const std::int64_t channels = l.channels, pixels = l.pixels;
  const auto grain = [](std::int64_t width) {
    return std::max<std::int64_t>(8192 / std::max<std::int64_t>(width, 1), 1);
  };
  if (l.rows) {
    parallel_for(l.count(), grain(channels), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t row = r * channels;
        for (std::int64_t c = 0; c < channels; ++c) to[row + c] = static_cast<T>(value(row + c, c));
      }
    });
    return;
  }
  parallel_for(l.images * channels, grain(pixels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const std::int64_t c = plane % channels;
      for (std::int64_t i = plane * pixels; i < (plane + 1) * pixels; ++i)
        to[i] = static_cast<T>(value(i, c));
    }
  });
}

// y = (x - center) scale + shift. Subtracting first keeps a large mean from
// cancelling after the multiplication.
template <class S>
struct Affine {
  std::vector<S> center, scale, shift;

  explicit Affine(std::int64_t channels)
      : center(static_cast<std::size_t>(channels)), scale(center.size()), shift(center.size()) {}

  template <class T>
  void apply(const Layout& l, const T* x, T* y) const {
    const S *m = center.data(), *a = scale.data(), *b = shift.data();
    for_each_element(
        l, y, [=](std::int64_t i, std::int64_t c) { return (static_cast<S>(x[i]) - m[c]) * a[c] + b[c]; });
  }
};

}  // namespace

void bias_grad(const Tensor& dy, Tensor& db) {
  const bool dense = dy.is_contiguous() || dy.is_contiguous(MemoryFormat::channels_last);
  const Tensor gradient = dense ? dy : ops::contiguous(dy);
  dispatch_floating("bias_grad", dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const T* d = gradient.data<T>();
    const auto sums = channel_sums<S>(Layout(gradient), [=](std::int64_t i, std::int64_t) {
      return Pair<S>{static_cast<S>(d[i]), S(0)};
    });
    for (std::size_t c = 0; c < sums.size(); ++c) db.data<S>()[c] = static_cast<S>(sums[c].first);
  });
}

void batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, double momentum,
                      double epsilon, Tensor& running_mean, Tensor& running_var, Tensor& out, Tensor& mean,
                      Tensor& invstd) {
  const Layout l(out);
  const Tensor input = as_dense_as(x, out);
  dispatch_floating("batch_norm", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const std::vector<Moments> statistics = moments(input.data<T>(), l);
    Affine<S> f(l.channels);
    for (std::size_t c = 0; c < statistics.size(); ++c) {
      const Moments& m = statistics[c];
      const double variance = m.squares / m.count, inverse = 1 / std::sqrt(variance + epsilon);
      const double scale = static_cast<double>(gamma.data<S>()[c]) * inverse;
      f.center[c] = mean.data<S>()[c] = static_cast<S>(m.mean);
      f.scale[c] = static_cast<S>(scale);
      // What rounding the mean lost belongs to the shift: beside a tiny deviation it is not small.
      f.shift[c] = static_cast<S>(static_cast<double>(beta.data<S>()[c]) -
                                  (m.mean - static_cast<double>(f.center[c])) * scale);
      invstd.data<S>()[c] = static_cast<S>(inverse);
      if (!running_mean.defined()) continue;
      // ops.h refuses a single value a channel; max() only keeps 0 / 0 out of the running statistics.
      const double unbiased = m.squares / std::max(m.count - 1, 1.0);
      S &tracked_mean = running_mean.data<S>()[c], &tracked_var = running_var.data<S>()[c];
      tracked_mean = static_cast<S>((1 - momentum) * static_cast<double>(tracked_mean) + momentum * m.mean);
      tracked_var = static_cast<S>((1 - momentum) * static_cast<double>(tracked_var) + momentum * unbiased);
    }
    f.apply(l, input.data<T>(), out.data<T>());
  });
}

void batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                     const Tensor& running_var, double epsilon, Tensor& out) {
  const Layout l(out);
  const Tensor input = as_dense_as(x, out);
  dispatch_floating("batch_norm", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    Affine<S> f(l.channels);
    for (std::size_t c = 0; c < f.scale.size(); ++c) {
      f.center[c] = running_mean.data<S>()[c];
      f.scale[c] = static_cast<S>(static_cast<double>(gamma.data<S>()[c]) /
                                  std::sqrt(static_cast<double>(running_var.data<S>()[c]) + epsilon));
      f.shift[c] = beta.data<S>()[c];
    }
    f.apply(l, input.data<T>(), out.data<T>());
  });
}

void batch_norm_moments(const Tensor& x, Tensor& mean, Tensor& squares) {
  dispatch_floating("batch_norm_moments", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::vector<Moments> found = moments(x.data<T>(), Layout(x));
    for (std::size_t c = 0; c < found.size(); ++c) {
      mean.data<double>()[c] = found[c].mean;
      squares.data<double>()[c] = found[c].squares;
    }
  });
}

void batch_norm_grad_sums(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& invstd,
                          Tensor& dgamma, Tensor& dbeta) {
  const Tensor gradient = as_dense_as(dy, x);
  dispatch_floating("batch_norm_grad_sums", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const T *px = x.data<T>(), *pd = gradient.data<T>();
    const S* m = mean.data<S>();
    const auto sums = channel_sums<S>(Layout(x), [=](std::int64_t i, std::int64_t c) {
      const S d = static_cast<S>(pd[i]);
      return Pair<S>{d, d * (static_cast<S>(px[i]) - m[c])};
    });
    for (std::size_t c = 0; c < sums.size(); ++c) {
      dbeta.data<S>()[c] = static_cast<S>(sums[c].first);
      dgamma.data<S>()[c] = static_cast<S>(sums[c].second * static_cast<double>(invstd.data<S>()[c]));
    }
  });
}

// dx = gamma invstd (dy - dbeta / n - xhat dgamma / n) = a dy + b (x - mean) + k, with a, b, k per channel.
void batch_norm_grad_input(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                           const Tensor& invstd, const Tensor& dgamma, const Tensor& dbeta, double count,
                           Tensor& dx) {
  const Layout l(dx);
  const Tensor input = as_dense_as(x, dx), gradient = as_dense_as(dy, dx);
  dispatch_floating("batch_norm_grad_input", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const auto channels = static_cast<std::size_t>(l.channels);
    std::vector<S> a(channels), b(channels), k(channels);
    const auto at = [](const Tensor& t, std::size_t c) { return static_cast<double>(t.data<S>()[c]); };
    for (std::size_t c = 0; c < channels; ++c) {
      const double inverse = at(invstd, c), scale = at(gamma, c) * inverse;
      a[c] = static_cast<S>(scale);
      b[c] = static_cast<S>(-scale * inverse * at(dgamma, c) / count);
      k[c] = static_cast<S>(-scale * at(dbeta, c) / count);
    }
    const T *px = input.data<T>(), *pd = gradient.data<T>();
    const S *m = mean.data<S>(), *pa = a.data(), *pb = b.data(), *pk = k.data();
    for_each_element(l, dx.data<T>(), [=](std::int64_t i, std::int64_t c) {
      return pa[c] * static_cast<S>(pd[i]) + (pb[c] * (static_cast<S>(px[i]) - m[c]) + pk[c]);
    });
  });
}

}  // namespace brigade::cpu
