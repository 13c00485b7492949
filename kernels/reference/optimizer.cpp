// SPDX-License-Identifier: MIT
// kernels/reference/optimizer.cpp - optimizer steps in double.
// The formulas: kernels/functor/optimizer.h.
#include "kernels/functor/optimizer.h"

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {

void sgd(const SgdConstants& k, const Tensor& grad, Tensor& momentum, Tensor& param) {
  const functor::Sgd<double> step{k};
  for (std::int64_t i = 0; i < param.numel(); ++i) {
    double p = get(param, i);
    if (k.momentum != 0) {
      double buf = k.first_step ? 0 : get(momentum, i);
      step(get(grad, i), buf, p);
      set(momentum, buf, i);
    } else {
      step(get(grad, i), p);
    }
    set(param, p, i);
  }
}

void adamw(const AdamwConstants& k, const Tensor& grad, Tensor& m, Tensor& v, Tensor& param) {
  const functor::Adamw<double> step{k};
  for (std::int64_t i = 0; i < param.numel(); ++i) {
    double first = get(m, i), second = get(v, i), p = get(param, i);
    step(get(grad, i), first, second, p);
    set(m, first, i);
    set(v, second, i);
    set(param, p, i);
  }
}

void lerp(const Tensor& target, double weight, Tensor& average) {
  for (std::int64_t i = 0; i < average.numel(); ++i)
    add_to(average, weight * (get(target, i) - get(average, i)), i);
}

}  // namespace brigade::reference
