// SPDX-License-Identifier: MIT
// kernels/reference/optimizer.cpp - optimizer steps in double.
// The formulas: kernels/functor/optimizer.h.
#include "kernels/functor/optimizer.h"

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {

void sgd(const SgdConstants& k, const Tensor& grad, Tensor& momentum, Tensor& param) {
  if (functor::skips(k.control)) return;
  const double factor = functor::gradient_factor<double>(k.control);
  const functor::Sgd<double> step{functor::with_control(k)};
  for (std::int64_t i = 0; i < param.numel(); ++i) {
    double p = get(param, i);
    if (k.momentum != 0) {
      double buf = k.first_step ? 0 : get(momentum, i);
      step(get(grad, i) * factor, buf, p);
      set(momentum, buf, i);
    } else {
      step(get(grad, i) * factor, p);
    }
    set(param, p, i);
  }
}

void adamw(const AdamwConstants& k, const Tensor& grad, Tensor& m, Tensor& v, Tensor& param) {
  if (functor::skips(k.control)) return;
  const double factor = functor::gradient_factor<double>(k.control);
  const functor::Adamw<double> step{functor::with_control(k)};
  for (std::int64_t i = 0; i < param.numel(); ++i) {
    double first = get(m, i), second = get(v, i), p = get(param, i);
    step(get(grad, i) * factor, first, second, p);
    set(m, first, i);
    set(v, second, i);
    set(param, p, i);
  }
}

void lerp(const Tensor& target, double weight, Tensor& average) {
  for (std::int64_t i = 0; i < average.numel(); ++i)
    add_to(average, weight * (get(target, i) - get(average, i)), i);
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
    for_each_index(x.shape(), [&](const Dims& i) {
      if (!std::isfinite(convert<double>(x.data<T>()[offset(x, i)]))) set(flags, 1, index);
    });
  });
}

void update_loss_scale(const LossScaleConstants& k, const Tensor& found, Tensor& scale, Tensor& good_steps) {
  functor::move_loss_scale(k, *found.data<std::int32_t>() != 0, *scale.data<float>(),
                           *good_steps.data<std::int32_t>());
}

}  // namespace brigade::reference
