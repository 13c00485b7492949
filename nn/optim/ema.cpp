// SPDX-License-Identifier: MIT
// nn/optim/ema.cpp - averaging and swapping, parameter by parameter.
#include "nn/optim/ema.h"

#include "kernels/ops.h"

namespace brigade::optim {

Ema::Ema(FlatParameters& parameters, double decay)
    : parameters_(&parameters), decay_(decay), average_(parameters.make_buffer()) {
  BRIGADE_CHECK(decay >= 0 && decay <= 1, "ema: decay must lie in [0, 1]; got ", decay);
  for (int i = 0; i < parameters.count(); ++i) {
    Tensor average = average_.at(parameters, i);
    ops::copy_(average, parameters.at(i).variable.value());
  }
}

void Ema::update() {
  BRIGADE_CHECK(!swapped_, "ema: the average is swapped in; swap() it out before update()");
  for (int i = 0; i < parameters_->count(); ++i) {
    const Tensor value = parameters_->at(i).variable.value();
    Tensor average = average_.at(*parameters_, i).view({-1});
    kernels(value.device()).lerp(value.view({-1}), 1 - decay_, average);
  }
}

void Ema::swap() {
  for (int i = 0; i < parameters_->count(); ++i) {
    Tensor value = parameters_->at(i).variable.value(), average = average_.at(*parameters_, i);
    const Tensor before = ops::clone(value);
    ops::copy_(value, average);
    ops::copy_(average, before);
  }
  swapped_ = !swapped_;
}

NamedTensors Ema::state() const {
  NamedTensors out;
  for (const int i : parameters_->in_registration_order())
    out.emplace_back(parameters_->at(i).name, average_.at(*parameters_, i));
  return out;
}

}  // namespace brigade::optim
