// SPDX-License-Identifier: MIT
// kernels/cpu/batch_norm.cpp - batch norm and the gradient of a bias: sums over everything but the
// channels. Bound by memory: forward and backward read their inputs twice and write once; a ReLU and an addition
// ride along. Formulas: kernels/reference/norm.cpp. The loops: kernels/cpu/channels.h.
#include <cmath>

#include "kernels/cpu/channels.h"
#include "kernels/cpu/structured.h"
#include "kernels/functor/elementwise.h"
#include "kernels/ops.h"

namespace brigade::cpu {

namespace {

// `t` dense in the layout of the dense tensor `like`.
Tensor as_dense_as(const Tensor& t, const Tensor& like) {
  const bool rows = like.dims() == 4 && like.is_contiguous(MemoryFormat::channels_last);
  return ops::contiguous(t, rows ? MemoryFormat::channels_last : MemoryFormat::contiguous);
}

// What is added before the ReLU, laid out like the result; undefined for nothing.
Tensor residual_as(const BatchNormTail& tail, const Tensor& like) {
  return tail.residual.defined() ? as_dense_as(tail.residual, like) : Tensor();
}
template <class T>
const T* data_or_null(const Tensor& t) {
  return t.defined() ? t.data<T>() : nullptr;
}

// Calls body with a compile-time `flag`.
template <class Body>
void with_flag(bool flag, const Body& body) {
  if (flag)
    body(std::true_type{});
  else
    body(std::false_type{});
}

// y = (x - center) scale + shift. Subtracting first keeps a large mean from
// cancelling after the multiplication.
template <class S>
struct Affine {
  std::vector<S> center, scale, shift;

  explicit Affine(std::int64_t channels)
      : center(static_cast<std::size_t>(channels)), scale(center.size()), shift(center.size()) {}

  // invstd is taken as it is kept for backward, which must come to the same bits.
  void set(std::size_t c, S mean, S gamma, S invstd, double shifted) {
    center[c] = mean;
    scale[c] = static_cast<S>(static_cast<double>(gamma) * static_cast<double>(invstd));
    shift[c] = static_cast<S>(shifted);
  }

  auto value() const {
    return [m = center.data(), a = scale.data(), b = shift.data()](S x, std::int64_t c) {
      return (x - m[c]) * a[c] + b[c];
    };
  }

  template <class T>
  void apply(const Layout& l, const T* x, const BatchNormTail& tail, const T* residual, T* y) const {
    with_flag(residual != nullptr, [&](auto add) {
      with_flag(tail.relu, [&](auto relu) {
        for_each_element(l, y, [=, bn = value()](std::int64_t i, std::int64_t c) {
          S v = bn(static_cast<S>(x[i]), c);
          if constexpr (add) v += static_cast<S>(residual[i]);
          if constexpr (relu) v = functor::Relu{}(v);
          return v;
        });
      });
    });
  }
};

// The largest S that rounds to zero in T. A value above it is one that the stored result shows as positive.
template <class T>
constexpr compute_t<T> rounds_to_zero() {
  if constexpr (std::is_same_v<T, bf16>) return kNarrowsToZero;
  if constexpr (std::is_same_v<T, f16>) return 0x1p-25f;
  return 0;
}

// The x -> y of a forward from what it left behind, to find out where its ReLU was open.
template <class S>
Affine<S> affine_of(const BatchNormForward& f) {
  Affine<S> affine(f.gamma.numel());
  for (std::size_t c = 0; c < affine.scale.size(); ++c)
    affine.set(c, f.mean.data<S>()[c], f.gamma.data<S>()[c], f.invstd.data<S>()[c],
               f.shift.defined() ? static_cast<double>(f.shift.data<S>()[c]) : 0);
  return affine;
}

// Calls body(z) where z(d, x, c) is the gradient by bn(x) of an element, from the one by the result.
template <class T, class Body>
void with_mask(const BatchNormForward& f, const Body& body) {
  using S = compute_t<T>;
  if (f.y.defined() || !f.shift.defined()) return body([](S d, S, std::int64_t) { return d; });
  const Affine<S> affine = affine_of<S>(f);
  body([bn = affine.value()](S d, S x, std::int64_t c) { return bn(x, c) > rounds_to_zero<T>() ? d : S(0); });
}

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
                      double epsilon, const BatchNormTail& tail, const ChannelMoments& known,
                      Tensor& running_mean, Tensor& running_var, Tensor& out, Tensor& mean, Tensor& invstd,
                      Tensor& shift) {
  const Layout l(out);
  const Tensor input = as_dense_as(x, out), added = residual_as(tail, out);
  dispatch_floating("batch_norm", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const Moments m = known.mean.defined() ? Moments(known, l.count()) : moments(input.data<T>(), l);
    Affine<S> f(l.channels);
    for (std::size_t c = 0; c < m.mean.size(); ++c) {
      mean.data<S>()[c] = static_cast<S>(m.mean[c]);
      invstd.data<S>()[c] = static_cast<S>(1 / std::sqrt(m.squares[c] / m.count + epsilon));
      const double scale = static_cast<double>(gamma.data<S>()[c]) * static_cast<double>(invstd.data<S>()[c]);
      // What rounding the mean lost belongs to the shift: beside a tiny deviation it is not small.
      const double lost = (m.mean[c] - static_cast<double>(mean.data<S>()[c])) * scale;
      f.set(c, mean.data<S>()[c], gamma.data<S>()[c], invstd.data<S>()[c],
            static_cast<double>(beta.data<S>()[c]) - lost);
      shift.data<S>()[c] = f.shift[c];
      if (!running_mean.defined()) continue;
      // ops.h refuses a single value a channel; max() only keeps 0 / 0 out of the running statistics.
      const double unbiased = m.squares[c] / std::max(m.count - 1, 1.0);
      S &tracked_mean = running_mean.data<S>()[c], &tracked_var = running_var.data<S>()[c];
      tracked_mean =
          static_cast<S>((1 - momentum) * static_cast<double>(tracked_mean) + momentum * m.mean[c]);
      tracked_var = static_cast<S>((1 - momentum) * static_cast<double>(tracked_var) + momentum * unbiased);
    }
    f.apply(l, input.data<T>(), tail, data_or_null<T>(added), out.data<T>());
  });
}

void batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                     const Tensor& running_var, double epsilon, const BatchNormTail& tail, Tensor& out) {
  const Layout l(out);
  const Tensor input = as_dense_as(x, out), added = residual_as(tail, out);
  dispatch_floating("batch_norm", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    Affine<S> f(l.channels);
    for (std::size_t c = 0; c < f.scale.size(); ++c) {
      const double inverse = 1 / std::sqrt(static_cast<double>(running_var.data<S>()[c]) + epsilon);
      f.set(c, running_mean.data<S>()[c], gamma.data<S>()[c], static_cast<S>(inverse),
            static_cast<double>(beta.data<S>()[c]));
    }
    f.apply(l, input.data<T>(), tail, data_or_null<T>(added), out.data<T>());
  });
}

void batch_norm_moments(const Tensor& x, Tensor& mean, Tensor& squares) {
  dispatch_floating("batch_norm_moments", x.dtype(), [&](auto tag) {
    const Moments found = moments(x.data<typename decltype(tag)::type>(), Layout(x));
    std::copy(found.mean.begin(), found.mean.end(), mean.data<double>());
    std::copy(found.squares.begin(), found.squares.end(), squares.data<double>());
  });
}

void batch_norm_grad_sums(const Tensor& dy, const BatchNormForward& forward, Tensor& dz, Tensor& dgamma,
                          Tensor& dbeta) {
  const Tensor& x = forward.x;
  const Tensor gradient = as_dense_as(dy, x);
  dispatch_floating("batch_norm_grad_sums", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const T *px = x.data<T>(), *pd = gradient.data<T>();
    const S* m = forward.mean.data<S>();
    std::vector<Pair<double>> sums;
    if (forward.y.defined()) {
      const Tensor result = as_dense_as(forward.y, x);
      const T* py = result.data<T>();
      T* pz = dz.data<T>();
      sums = channel_sums<S>(Layout(x), [=](std::int64_t i, std::int64_t c) {
        const S d = functor::ReluGrad{}(static_cast<S>(pd[i]), static_cast<S>(py[i]));
        pz[i] = static_cast<T>(d);
        return Pair<S>{d, d * (static_cast<S>(px[i]) - m[c])};
      });
    } else {
      with_mask<T>(forward, [&](const auto& z) {
        sums = channel_sums<S>(Layout(x), [=](std::int64_t i, std::int64_t c) {
          const S value = static_cast<S>(px[i]), d = z(static_cast<S>(pd[i]), value, c);
          return Pair<S>{d, d * (value - m[c])};
        });
      });
    }
    for (std::size_t c = 0; c < sums.size(); ++c) {
      dbeta.data<S>()[c] = static_cast<S>(sums[c].first);
      dgamma.data<S>()[c] = static_cast<S>(sums[c].second * static_cast<double>(forward.invstd.data<S>()[c]));
    }
  });
}

// dx = gamma invstd (dz - dbeta / n - xhat dgamma / n) = a dz + b (x - mean) + k, with a, b, k per channel.
void batch_norm_grad_input(const Tensor& dy, const BatchNormForward& forward, const Tensor& dgamma,
                           const Tensor& dbeta, double count, Tensor& dx) {
  const Layout l(dx);
  const Tensor input = as_dense_as(forward.x, dx), gradient = as_dense_as(dy, dx);
  dispatch_floating("batch_norm_grad_input", dx.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const auto channels = static_cast<std::size_t>(l.channels);
    std::vector<S> a(channels), b(channels), k(channels);
    const auto at = [](const Tensor& t, std::size_t c) { return static_cast<double>(t.data<S>()[c]); };
    for (std::size_t c = 0; c < channels; ++c) {
      const double inverse = at(forward.invstd, c), scale = at(forward.gamma, c) * inverse;
      a[c] = static_cast<S>(scale);
      b[c] = static_cast<S>(-scale * inverse * at(dgamma, c) / count);
      k[c] = static_cast<S>(-scale * at(dbeta, c) / count);
    }
    const T *px = input.data<T>(), *pd = gradient.data<T>();
    const S *m = forward.mean.data<S>(), *pa = a.data(), *pb = b.data(), *pk = k.data();
    with_mask<T>(forward, [&](const auto& z) {
      for_each_element(l, dx.data<T>(), [=](std::int64_t i, std::int64_t c) {
        const S value = static_cast<S>(px[i]);
        return pa[c] * z(static_cast<S>(pd[i]), value, c) + (pb[c] * (value - m[c]) + pk[c]);
      });
    });
  });
}

}  // namespace brigade::cpu
