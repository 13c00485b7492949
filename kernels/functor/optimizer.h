// SPDX-License-Identifier: MIT
// kernels/functor/optimizer.h - one parameter's optimizer step as scalar maths, for every device.
// The formulas are PyTorch's. Read before: kernels/parameters.h.
#pragma once

#include <cmath>

#include "core/dtype.h"
#include "kernels/parameters.h"

namespace brigade::functor {

/// What StepControl says: whether there is a step at all, and what a gradient is multiplied by.
BRIGADE_HD inline bool skips(const StepControl& control) {
  return control.skip != nullptr && *control.skip != 0;
}
template <class T>
BRIGADE_HD T gradient_factor(const StepControl& control) {
  T factor = control.grad_scale != nullptr ? T{1} / T(*control.grad_scale) : T{1};
  if (control.clip != nullptr) factor *= T(*control.clip);
  if (control.trust != nullptr) factor *= T(*control.trust);
  return factor;
}
/// The constants with what StepControl holds in memory: once, before the first element.
BRIGADE_HD inline SgdConstants with_control(SgdConstants k) {
  if (k.control.lr != nullptr) k.lr = *k.control.lr;
  if (k.control.trust != nullptr) k.weight_decay *= *k.control.trust;
  return k;
}
BRIGADE_HD inline AdamwConstants with_control(AdamwConstants k) {
  if (k.control.lr != nullptr) k.lr = *k.control.lr;
  if (k.control.bias_corrections == nullptr) return k;
  k.bias_correction1 = k.control.bias_corrections[0];
  k.bias_correction2 = k.control.bias_corrections[1];
  return k;
}

/// See KernelTable::clip_factor. A norm that is not finite changes nothing: others decide about such a step.
BRIGADE_HD inline float clip_factor(double max_norm, double squares) {
  const double factor = max_norm / (std::sqrt(squares) + 1e-6);
  return std::isfinite(squares) && factor < 1 ? static_cast<float>(factor) : 1.0f;
}
/// See KernelTable::trust_ratio.
BRIGADE_HD inline float trust_ratio(const TrustConstants& k, double value_squares, double grad_squares) {
  const double p = std::sqrt(value_squares);
  const double g = std::sqrt(grad_squares) * (k.clip != nullptr ? static_cast<double>(*k.clip) : 1.0);
  return p > 0 && g > 0 ? static_cast<float>(k.trust * p / (g + k.weight_decay * p)) : 1.0f;
}

/// See KernelTable::update_loss_scale.
BRIGADE_HD inline void move_loss_scale(const LossScaleConstants& k, bool found, float& scale,
                                       std::int32_t& good_steps) {
  if (found) {
    scale *= k.backoff;
    good_steps = 0;
  } else if (++good_steps >= k.interval) {
    const float grown = scale * k.growth;
    if (std::isfinite(grown)) scale = grown;
    good_steps = 0;
  }
}

/// SGD with momentum (Sutskever et al., 2013, in PyTorch's form):
///   g += weight_decay p;  buf = first step ? g : momentum buf + (1 - dampening) g
///   p -= lr (nesterov ? g + momentum buf : buf)
/// where the first step is the parameter's own. Without momentum the direction is g and `buf` is not touched.
template <class T>
struct Sgd {
  SgdConstants k;

  BRIGADE_HD void operator()(T grad, T& buf, T& p) const {
    const T g = grad + T(k.weight_decay) * p;
    buf = k.first_step ? g : T(k.momentum) * buf + (T{1} - T(k.dampening)) * g;
    p -= T(k.lr) * (k.nesterov ? g + T(k.momentum) * buf : buf);
  }
  BRIGADE_HD void operator()(T grad, T& p) const { p -= T(k.lr) * (grad + T(k.weight_decay) * p); }
};

/// AdamW (Loshchilov and Hutter, 2019): the decay is applied to the parameter, not to the gradient.
///   p *= 1 - lr weight_decay;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g²
///   p -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
/// where t counts the parameter's own updates.
template <class T>
struct Adamw {
  AdamwConstants k;

  BRIGADE_HD void operator()(T g, T& m, T& v, T& p) const {
    m = T(k.beta1) * m + (T{1} - T(k.beta1)) * g;
    v = T(k.beta2) * v + (T{1} - T(k.beta2)) * g * g;
    const T step = T(k.lr) / T(k.bias_correction1);
    const T scale = std::sqrt(v) / std::sqrt(T(k.bias_correction2)) + T(k.epsilon);
    p = p * (T{1} - T(k.lr) * T(k.weight_decay)) - step * m / scale;
  }
};

}  // namespace brigade::functor
