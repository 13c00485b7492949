// SPDX-License-Identifier: MIT
// nn/optim/adamw.cpp - one kernel call for each run of parameters that share their constants.
#include "nn/optim/adamw.h"

#include <cmath>

#include "kernels/kernels.h"

namespace brigade::optim {

Adamw::Adamw(FlatParameters& parameters, double lr, const AdamwOptions& options)
    : Optimizer(parameters, lr, options.decay),
      options_(options),
      first_moment_(parameters.make_buffer()),
      second_moment_(parameters.make_buffer()) {
  BRIGADE_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
                "adamw: betas must lie in [0, 1); got beta1 ", options.beta1, ", beta2 ", options.beta2);
  // An epsilon of 0 would divide 0 by 0 in the alignment gaps.
  BRIGADE_CHECK(options.epsilon > 0 && options.weight_decay >= 0,
                "adamw: epsilon must be positive and weight decay at least 0; got epsilon ", options.epsilon,
                ", weight decay ", options.weight_decay);
}

void Adamw::update(Range range) {
  const auto key = [&](int i) { return run_key(i); };
  parameters_->for_each_run(range, key, [&](Range run) {
    const auto t = static_cast<double>(updates(run.begin) + 1);
    AdamwConstants constants{
        .lr = static_cast<float>(lr_),
        .beta1 = static_cast<float>(options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .epsilon = static_cast<float>(options_.epsilon),
        .weight_decay = static_cast<float>(decays(run.begin) ? options_.weight_decay : 0),
        .bias_correction1 = static_cast<float>(1 - std::pow(options_.beta1, t)),
        .bias_correction2 = static_cast<float>(1 - std::pow(options_.beta2, t)),
    };
    constants.control = control(updates(run.begin), constants.bias_correction1, constants.bias_correction2);
    Tensor values = parameters_->values(run);
    Tensor m = first_moment_.view(*parameters_, run), v = second_moment_.view(*parameters_, run);
    if (launches()) kernels(values.device()).adamw(constants, parameters_->gradients(run), m, v, values);
    finish_update(run);
  });
}

NamedTensors Adamw::state() {
  NamedTensors out;
  append_state(out, "first_moment", first_moment_);
  append_state(out, "second_moment", second_moment_);
  append_updates(out);
  return out;
}

}  // namespace brigade::optim
