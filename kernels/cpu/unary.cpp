// SPDX-License-Identifier: MIT
// kernels/cpu/unary.cpp - the unary operations over any strides.
#include "kernels/cpu/basic.h"
#include "kernels/cpu/map.h"
#include "kernels/functor/elementwise.h"

namespace brigade::cpu {

void unary(Unary op, const Tensor& x, Tensor& out) {
  functor::dispatch_unary(op, [&](auto f) {
    dispatch(x.dtype(), [&](auto tag) {
      using F = decltype(f);
      using T = typename decltype(tag)::type;
      if constexpr (functor::applies<F, T>) map<functor::unary_result_t<F, T>, T>(f, x, out);
    });
  });
}

}  // namespace brigade::cpu
