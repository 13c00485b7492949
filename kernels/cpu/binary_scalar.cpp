// SPDX-License-Identifier: MIT
// kernels/cpu/binary_scalar.cpp - binary operations with a constant on the right.
#include "kernels/cpu/basic.h"
#include "kernels/cpu/map.h"
#include "kernels/functor/elementwise.h"

namespace brigade::cpu {

void binary_scalar(Binary op, const Tensor& a, double b, Tensor& out) {
  functor::dispatch_binary(op, [&](auto f) {
    dispatch(a.dtype(), [&](auto tag) {
      using F = decltype(f);
      using T = typename decltype(tag)::type;
      if constexpr (functor::applies<F, T>) {
        const auto constant = convert<compute_t<T>>(b);
        map<functor::binary_result_t<F, T>, T>([f, constant](compute_t<T> x) { return f(x, constant); }, a,
                                               out);
      }
    });
  });
}

}  // namespace brigade::cpu
