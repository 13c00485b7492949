// SPDX-License-Identifier: MIT
// kernels/cpu/optimizer.cpp - optimizer steps over flat memory; the formulas are in kernels/functor/optimizer.h.
// Each step is one loop body without fused multiply-adds (see the root CMakeLists.txt), so an element's new value
// does not depend on where the memory was cut: sharded and whole updates agree to the bit.
#include "kernels/functor/optimizer.h"

#include <atomic>

#include "kernels/cpu/basic.h"
#include "kernels/cpu/walk.h"
#include "kernels/functor/convert.h"

namespace brigade::cpu {

void sgd(const SgdConstants& k, const Tensor& grad, Tensor& momentum, Tensor& param) {
  if (functor::skips(k.control)) return;
  dispatch_floating("sgd", param.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const functor::Sgd<C> step{functor::with_control(k)};
    const C factor = functor::gradient_factor<C>(k.control);
    const T* g = grad.data<T>();
    T* p = param.data<T>();
    if (k.momentum == 0) {
      parallel_for(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
        for (std::int64_t i = begin; i < end; ++i) {
          C value = convert<C>(p[i]);
          step(convert<C>(g[i]) * factor, value);
          p[i] = convert<T>(value);
        }
      });
      return;
    }
    T* m = momentum.data<T>();
    parallel_for(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        C value = convert<C>(p[i]), buf = convert<C>(m[i]);
        step(convert<C>(g[i]) * factor, buf, value);
        m[i] = convert<T>(buf);
        p[i] = convert<T>(value);
      }
    });
  });
}

void adamw(const AdamwConstants& k, const Tensor& grad, Tensor& m, Tensor& v, Tensor& param) {
  if (functor::skips(k.control)) return;
  dispatch_floating("adamw", param.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const functor::Adamw<C> step{functor::with_control(k)};
    const C factor = functor::gradient_factor<C>(k.control);
    const T* g = grad.data<T>();
    T *ms = m.data<T>(), *vs = v.data<T>(), *p = param.data<T>();
    parallel_for(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        C first = convert<C>(ms[i]), second = convert<C>(vs[i]), value = convert<C>(p[i]);
        step(convert<C>(g[i]) * factor, first, second, value);
        ms[i] = convert<T>(first);
        vs[i] = convert<T>(second);
        p[i] = convert<T>(value);
      }
    });
  });
}

void lerp(const Tensor& target, double weight, Tensor& average) {
  dispatch_floating("lerp", average.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const C w = static_cast<C>(weight);
    const T* from = target.data<T>();
    T* to = average.data<T>();
    parallel_for(average.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const C old = convert<C>(to[i]);
        to[i] = convert<T>(old + w * (convert<C>(from[i]) - old));
      }
    });
  });
}

void clip_factor(double max_norm, const Tensor& squares, Tensor& factor) {
  *factor.data<float>() = functor::clip_factor(max_norm, *squares.data<double>());
}

void trust_ratio(const TrustConstants& k, const Tensor& value_squares, const Tensor& grad_squares,
                 Tensor& ratio) {
  *ratio.data<float>() = functor::trust_ratio(k, *value_squares.data<double>(), *grad_squares.data<double>());
}

void flag_non_finite(const Tensor& x, Tensor& flags, std::int64_t index) {
  dispatch_floating("flag_non_finite", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    std::atomic<bool> found = false;
    parallel_runs(plan_walk(Order::memory, x),
                  [&](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                    // A product of 0 and each value is 0, or a NaN where one is not finite.
                    compute_t<T> sum = 0;
                    for (std::int64_t i = 0; i < count; ++i)
                      sum += convert<compute_t<T>>(from[at[0] + i * stride[0]]) * compute_t<T>{0};
                    if (sum != 0) found = true;
                  });
    if (found) flags.data<std::int32_t>()[index * flags.stride(0)] = 1;
  });
}

void update_loss_scale(const LossScaleConstants& k, const Tensor& found, Tensor& scale, Tensor& good_steps) {
  functor::move_loss_scale(k, *found.data<std::int32_t>() != 0, *scale.data<float>(),
                           *good_steps.data<std::int32_t>());
}

}  // namespace brigade::cpu
