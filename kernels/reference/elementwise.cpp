// SPDX-License-Identifier: MIT
// kernels/reference/elementwise.cpp - one element at a time, floats in double, integers in i64.
#include "kernels/functor/elementwise.h"

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

// out[i] = f(wide values of xs[i]...), where all xs have one dtype.
template <class Out, class In, class F, class... Xs>
void map(const F& f, Tensor& out, const Xs&... xs) {
  for_each_index(out.shape(), [&](const Dims& i) {
    out.data<Out>()[offset(out, i)] =
        convert<Out>(f(convert<wide_t<In>>(xs.template data<In>()[offset(xs, i)])...));
  });
}

}  // namespace

void fill(Tensor& out, double value) {
  dispatch(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_index(out.shape(), [&](const Dims& i) { out.data<T>()[offset(out, i)] = convert<T>(value); });
  });
}

void copy(const Tensor& x, Tensor& out) {
  dispatch(x.dtype(), [&](auto from) {
    using X = typename decltype(from)::type;
    dispatch(out.dtype(), [&](auto to) {
      using Y = typename decltype(to)::type;
      for_each_index(out.shape(), [&](const Dims& i) {
        out.data<Y>()[offset(out, i)] = convert<Y>(x.data<X>()[offset(x, i)]);
      });
    });
  });
}

void unary(Unary op, const Tensor& x, Tensor& out) {
  functor::dispatch_unary(op, [&](auto f) {
    dispatch(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using Out = functor::unary_result_t<decltype(f), T>;
      if constexpr (functor::applies<decltype(f), T>) map<Out, T>(f, out, x);
    });
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) {
  functor::dispatch_binary(op, [&](auto f) {
    dispatch(a.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using Out = functor::binary_result_t<decltype(f), T>;
      if constexpr (functor::applies<decltype(f), T>) map<Out, T>(f, out, a, b);
    });
  });
}

void binary_scalar(Binary op, const Tensor& a, double b, Tensor& out) {
  // The scalar takes the compute type of the tensor before it is used, as on every device.
  Tensor scalar =
      Tensor::empty({}, a.dtype() == DType::bf16 || a.dtype() == DType::f16 ? DType::f32 : a.dtype());
  set(scalar, b);
  functor::dispatch_binary(op, [&](auto f) {
    dispatch(a.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using Out = functor::binary_result_t<decltype(f), T>;
      const auto wide = convert<wide_t<T>>(*scalar.data<compute_t<T>>());
      if constexpr (functor::applies<decltype(f), T>)
        map<Out, T>([&](wide_t<T> x) { return f(x, wide); }, out, a);
    });
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  dispatch(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_index(out.shape(), [&](const Dims& i) {
      const Tensor& chosen = condition.data<bool>()[offset(condition, i)] ? a : b;
      out.data<T>()[offset(out, i)] = chosen.data<T>()[offset(chosen, i)];
    });
  });
}

}  // namespace brigade::reference
