// SPDX-License-Identifier: MIT
// kernels/cpu/map.h - out[i] = f(x[i]) over any strides, with straight loops that vectorise.
// `#pragma GCC ivdep` says that no iteration reads what another one writes: true because an output is either
// separate from the inputs or the very same view (kernels/ops_check.h, unaliased). Without it GCC's overlap test
// would send in-place operations to the scalar loop.
#pragma once

#include "kernels/cpu/walk.h"
#include "kernels/functor/convert.h"

namespace brigade::cpu {

/// out[i] = f(x[i]); f takes and returns compute types.
template <class Y, class X, class F>
void map(const F& f, const Tensor& x, Tensor& out) {
  const auto* xs = x.data<X>();
  auto* ys = out.data<Y>();
  const auto one = [&f](X value) { return convert<Y>(f(convert<compute_t<X>>(value))); };
  parallel_runs(plan_walk(Order::memory, out, x),
                [=](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                  Y* to = ys + at[0];
                  const X* from = xs + at[1];
                  if (stride[0] == 1 && stride[1] == 1) {
#pragma GCC ivdep
                    for (std::int64_t i = 0; i < count; ++i) to[i] = one(from[i]);
                  } else {
                    for (std::int64_t i = 0; i < count; ++i) to[i * stride[0]] = one(from[i * stride[1]]);
                  }
                });
}

}  // namespace brigade::cpu
