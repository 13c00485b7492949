// SPDX-License-Identifier: MIT
// kernels/cpu/optimizer.cpp - optimizer steps over flat memory; the formulas are in kernels/functor/optimizer.h.
// Each step is one loop body without fused multiply-adds (see the root CMakeLists.txt), so an element's new value
// does not depend on where the memory was cut: sharded and whole updates agree to the bit.
#include "kernels/functor/optimizer.h"

#include "kernels/cpu/basic.h"
#include "kernels/cpu/walk.h"
#include "kernels/functor/convert.h"

namespace brigade::cpu {

void sgd(const SgdConstants& k, const Tensor& grad, Tensor& momentum, Tensor& param) {
  dispatch_floating("sgd", param.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const functor::Sgd<C> step{k};
    const T* g = grad.data<T>();
    T* p = param.data<T>();
    if (k.momentum == 0) {
      parallel_for(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
        for (std::int64_t i = begin; i < end; ++i) {
          C value = convert<C>(p[i]);
          step(convert<C>(g[i]), value);
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
        step(convert<C>(g[i]), buf, value);
        m[i] = convert<T>(buf);
        p[i] = convert<T>(value);
      }
    });
  });
}

void adamw(const AdamwConstants& k, const Tensor& grad, Tensor& m, Tensor& v, Tensor& param) {
  dispatch_floating("adamw", param.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const functor::Adamw<C> step{k};
    const T* g = grad.data<T>();
    T *ms = m.data<T>(), *vs = v.data<T>(), *p = param.data<T>();
    parallel_for(param.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        C first = convert<C>(ms[i]), second = convert<C>(vs[i]), value = convert<C>(p[i]);
        step(convert<C>(g[i]), first, second, value);
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

}  // namespace brigade::cpu
