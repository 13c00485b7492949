// SPDX-License-Identifier: MIT
// kernels/cpu/binary.cpp - binary operations over any strides. The runs that occur in training get straight loops:
// both operands dense, or one of them constant along the run (a bias, a scale per channel).
#include "kernels/cpu/basic.h"
#include "kernels/cpu/walk.h"
#include "kernels/functor/elementwise.h"

namespace brigade::cpu {
namespace {

template <class F, class T>
void run(F f, const T* a, const T* b, functor::binary_result_t<F, T>* out, std::int64_t count,
         const std::int64_t* stride) {
  using Out = functor::binary_result_t<F, T>;
  using C = compute_t<T>;
  if (stride[0] == 1 && stride[1] == 1 && stride[2] == 1) {
#pragma GCC ivdep  // See kernels/cpu/map.h.
    for (std::int64_t i = 0; i < count; ++i) out[i] = convert<Out>(f(convert<C>(a[i]), convert<C>(b[i])));
  } else if (stride[0] == 1 && stride[1] == 1 && stride[2] == 0) {
    const C constant = convert<C>(*b);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) out[i] = convert<Out>(f(convert<C>(a[i]), constant));
  } else if (stride[0] == 1 && stride[1] == 0 && stride[2] == 1) {
    const C constant = convert<C>(*a);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) out[i] = convert<Out>(f(constant, convert<C>(b[i])));
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      out[i * stride[0]] = convert<Out>(f(convert<C>(a[i * stride[1]]), convert<C>(b[i * stride[2]])));
  }
}

}  // namespace

void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) {
  functor::dispatch_binary(op, [&](auto f) {
    dispatch(a.dtype(), [&](auto tag) {
      using F = decltype(f);
      using T = typename decltype(tag)::type;
      if constexpr (functor::applies<F, T>) {
        const auto *as = a.data<T>(), *bs = b.data<T>();
        auto* outs = out.data<functor::binary_result_t<F, T>>();
        parallel_runs(
            plan_walk(Order::memory, out, a, b),
            [=](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
              run<F, T>(f, as + at[1], bs + at[2], outs + at[0], count, stride);
            });
      }
    });
  });
}

}  // namespace brigade::cpu
