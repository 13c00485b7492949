// SPDX-License-Identifier: MIT
// nn/optim/lars.cpp - SGD's kernel on a gradient scaled by the trust ratio, parameter by parameter.
#include "nn/optim/lars.h"

#include <cmath>

#include "kernels/ops.h"

namespace brigade::optim {

Lars::Lars(FlatParameters& parameters, double lr, const LarsOptions& options)
    : Optimizer(parameters, lr, options.decay), options_(options) {
  BRIGADE_CHECK(options.momentum >= 0 && options.weight_decay >= 0 && options.trust > 0,
                "lars: momentum and weight decay must be at least 0, trust positive; got momentum ",
                options.momentum, ", weight decay ", options.weight_decay, ", trust ", options.trust);
  if (options.momentum > 0) momentum_ = parameters.make_buffer();
}

double Lars::trust_ratio(int position) const {
  if (!decays(position)) return 1;
  const Variable& variable = parameters_->at(position).variable;
  const double p = std::sqrt(ops::sum_of_squares(variable.value()));
  const double g = std::sqrt(ops::sum_of_squares(variable.grad())) / parameters_->grad_scale();
  return p > 0 && g > 0 ? options_.trust * p / (g + options_.weight_decay * p) : 1;
}

// ratio (g + decay p) = (ratio g) + (ratio decay) p
void Lars::update(Range range) {
  const auto alone = [](int i) { return i; };  // The ratio is a parameter's own.
  parameters_->for_each_run(range, alone, [&](Range run) {
    SgdConstants constants{
        .lr = static_cast<float>(lr_),
        .momentum = static_cast<float>(options_.momentum),
        .dampening = 0,
        .weight_decay = static_cast<float>(decays(run.begin) ? options_.weight_decay : 0),
        .nesterov = false,
        .first_step = updates(run.begin) == 0,
        .control = control(),
    };
    Tensor values = parameters_->values(run);
    if (values.device() != Device{}) {
      if (launches()) update_on_device(run, constants);
    } else {
      const double ratio = trust_ratio(run.begin);
      if (decays(run.begin)) constants.weight_decay = static_cast<float>(ratio * options_.weight_decay);
      Tensor momentum = options_.momentum > 0 ? momentum_.view(*parameters_, run) : Tensor();
      // Not scaled in place: grad() stays what backward gave.
      const Tensor gradient = parameters_->gradients(run);
      kernels(values.device())
          .sgd(constants, ratio == 1 ? gradient : ops::mul(gradient, ratio), momentum, values);
    }
    finish_update(run);
  });
}

void Lars::update_on_device(Range run, SgdConstants constants) {
  Tensor values = parameters_->values(run);
  const Tensor gradients = parameters_->gradients(run);
  const Device device = values.device();
  if (decays(run.begin)) {
    if (!ratios_.defined()) ratios_ = Tensor::empty({parameters_->count()}, DType::f32, device);
    Tensor squares = Tensor::empty({2}, DType::f64, device);
    Tensor p = squares.slice(0, 0, 1), g = squares.slice(0, 1, 2);
    Tensor ratio = ratios_.slice(0, run.begin, run.end);
    ops::sum_of_squares(values, p);  // Gaps are zeros.
    ops::sum_of_squares(gradients, g);
    if (const Tensor& scale = parameters_->grad_scale_memory(); scale.defined()) {
      const Tensor wide = ops::cast(scale, DType::f64);
      ops::binary_(Binary::div, g, ops::mul(wide, wide));
    }
    ops::trust_ratio(
        {.trust = options_.trust, .weight_decay = options_.weight_decay, .clip = constants.control.clip}, p,
        g, ratio);
    constants.control.trust = ratio.data<float>();
  }
  Tensor momentum = options_.momentum > 0 ? momentum_.view(*parameters_, run) : Tensor();
  kernels(device).sgd(constants, gradients, momentum, values);
}

NamedTensors Lars::state() {
  NamedTensors out;
  if (options_.momentum > 0) append_state(out, "momentum", momentum_);
  append_updates(out);
  return out;
}

}  // namespace brigade::optim
