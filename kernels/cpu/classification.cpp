// SPDX-License-Identifier: MIT
// kernels/cpu/classification.cpp - softmax and cross entropy, one row at a time; formulas and derivatives are at
// kernels/reference/classification.cpp. A row is computed in the compute type, its sums in double.
#include <cmath>
#include <vector>

#include "kernels/cpu/basic.h"
#include "kernels/cpu/walk.h"
#include "kernels/functor/convert.h"

namespace brigade::cpu {
namespace {

// Calls body(begin, end) on ranges of rows of a contiguous x [.., D].
template <class Body>
void parallel_rows(const Tensor& x, const Body& body) {
  const std::int64_t width = x.shape().back();
  if (x.numel() > 0) parallel_for(x.numel() / width, std::max<std::int64_t>(1, kGrain / 8 / width), body);
}

// shifted[i] = x[i] - max; returns the sum of their exponentials, in `powers` if it is given.
template <class T>
double shift_row(const T* x, std::int64_t width, compute_t<T>* shifted, compute_t<T>* powers) {
  using C = compute_t<T>;
  C largest = convert<C>(x[0]);
  for (std::int64_t i = 1; i < width; ++i) {
    const C value = convert<C>(x[i]);
    largest = value > largest ? value : largest;
  }
  for (std::int64_t i = 0; i < width; ++i) shifted[i] = convert<C>(x[i]) - largest;
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    const C power = std::exp(shifted[i]);
    if (powers != nullptr) powers[i] = power;
    sum += static_cast<double>(power);
  }
  return sum;
}

// out = log_softmax(x) for rows of X, written as Y.
template <class X, class Y>
void log_softmax_rows(const Tensor& x, Tensor& out) {
  using C = compute_t<X>;
  const std::int64_t width = x.shape().back();
  const X* xs = x.data<X>();
  Y* ys = out.data<Y>();
  parallel_rows(x, [=](std::int64_t begin, std::int64_t end) {
    std::vector<C> shifted(static_cast<std::size_t>(width));
    for (std::int64_t r = begin; r < end; ++r) {
      const C log_sum = static_cast<C>(std::log(shift_row(xs + r * width, width, shifted.data(), nullptr)));
      for (std::int64_t i = 0; i < width; ++i)
        ys[r * width + i] = convert<Y>(shifted[static_cast<std::size_t>(i)] - log_sum);
    }
  });
}

// dx = f(dy, y, total), where total = sum over the row of g(dy, y).
template <class T, class G, class F>
void row_gradient(const Tensor& dy, const Tensor& y, Tensor& dx, const G& g, const F& f) {
  using C = compute_t<T>;
  const std::int64_t width = y.shape().back();
  const T *dys = dy.data<T>(), *ys = y.data<T>();
  T* dxs = dx.data<T>();
  parallel_rows(y, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin * width; at < end * width; at += width) {
      double sum = 0;
      for (std::int64_t i = at; i < at + width; ++i)
        sum += static_cast<double>(g(convert<C>(dys[i]), convert<C>(ys[i])));
      const C total = static_cast<C>(sum);
      for (std::int64_t i = at; i < at + width; ++i)
        dxs[i] = convert<T>(f(convert<C>(dys[i]), convert<C>(ys[i]), total));
    }
  });
}

}  // namespace

void softmax(const Tensor& x, Tensor& out) {
  dispatch_floating("softmax", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const std::int64_t width = x.shape().back();
    const T* xs = x.data<T>();
    T* ys = out.data<T>();
    parallel_rows(x, [=](std::int64_t begin, std::int64_t end) {
      std::vector<C> powers(static_cast<std::size_t>(width));
      for (std::int64_t r = begin; r < end; ++r) {
        const double sum = shift_row(xs + r * width, width, powers.data(), powers.data());
        const C scale = static_cast<C>(1 / sum);
        for (std::int64_t i = 0; i < width; ++i)
          ys[r * width + i] = convert<T>(powers[static_cast<std::size_t>(i)] * scale);
      }
    });
  });
}

void log_softmax(const Tensor& x, Tensor& out) {
  dispatch_floating("log_softmax", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    log_softmax_rows<T, T>(x, out);
  });
}

void softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx) {
  dispatch_floating("softmax_grad", y.dtype(), [&](auto tag) {
    row_gradient<typename decltype(tag)::type>(
        dy, y, dx, [](auto d, auto p) { return d * p; },
        [](auto d, auto p, auto dot) { return p * (d - dot); });
  });
}

void log_softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx) {
  dispatch_floating("log_softmax_grad", y.dtype(), [&](auto tag) {
    row_gradient<typename decltype(tag)::type>(
        dy, y, dx, [](auto d, auto) { return d; },
        [](auto d, auto log_p, auto sum) { return d - std::exp(log_p) * sum; });
  });
}

void cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing, std::int64_t ignore_index,
                   Tensor& loss, Tensor& log_probs) {
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  const auto* label = labels.data<std::int64_t>();
  // log_probs are double beside double logits and float beside all others.
  dispatch_floating("cross_entropy", logits.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using L = compute_t<T>;
    log_softmax_rows<T, L>(logits, log_probs);
    const L* lp = log_probs.data<L>();
    std::int64_t counted = 0;
    double total = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      if (label[r] == ignore_index) continue;
      ++counted;
      double sum = 0;
      if (smoothing != 0)
        for (std::int64_t c = 0; c < classes; ++c) sum += static_cast<double>(lp[r * classes + c]);
      total -= (1 - smoothing) * static_cast<double>(lp[r * classes + label[r]]) +
               smoothing / static_cast<double>(classes) * sum;
    }
    *loss.data<L>() = static_cast<L>(total / static_cast<double>(counted));  // NaN if all are ignored.
  });
}

void cross_entropy_grad(const Tensor& dloss, const Tensor& log_probs, const Tensor& labels, double smoothing,
                        std::int64_t ignore_index, Tensor& dlogits) {
  const std::int64_t rows = log_probs.size(0), classes = log_probs.size(1);
  const auto* label = labels.data<std::int64_t>();
  const std::int64_t counted = rows - std::count(label, label + rows, ignore_index);
  const double scale = dloss.item() / static_cast<double>(counted);
  dispatch_floating("cross_entropy_grad", log_probs.dtype(), [&](auto from) {
    using L = typename decltype(from)::type;
    using C = compute_t<L>;
    const L* lp = log_probs.data<L>();
    const C smooth = static_cast<C>(smoothing / static_cast<double>(classes));
    dispatch_floating("cross_entropy_grad", dlogits.dtype(), [&](auto to) {
      using T = typename decltype(to)::type;
      T* out = dlogits.data<T>();
      parallel_rows(log_probs, [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          T* row = out + r * classes;
          if (label[r] == ignore_index) {
            std::fill_n(row, classes, convert<T>(0.0));
            continue;
          }
          for (std::int64_t c = 0; c < classes; ++c) {
            const C target = smooth + (c == label[r] ? static_cast<C>(1 - smoothing) : C{0});
            row[c] = convert<T>((std::exp(convert<C>(lp[r * classes + c])) - target) * static_cast<C>(scale));
          }
        }
      });
    });
  });
}

}  // namespace brigade::cpu
