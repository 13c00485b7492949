// SPDX-License-Identifier: MIT
// nn/optim/sgd.cpp - one kernel call for each run of parameters that share their constants.
#include "nn/optim/sgd.h"

#include "kernels/kernels.h"

namespace brigade::optim {

Sgd::Sgd(FlatParameters& parameters, double lr, const SgdOptions& options)
    : Optimizer(parameters, lr, options.decay), options_(options) {
  BRIGADE_CHECK(options.momentum >= 0 && options.weight_decay >= 0,
                "sgd: momentum and weight decay must be at least 0; got momentum ", options.momentum,
                ", weight decay ", options.weight_decay);
  BRIGADE_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
                "sgd: nesterov needs momentum and no dampening; got momentum ", options.momentum,
                ", dampening ", options.dampening);
  if (options.momentum > 0) momentum_ = parameters.make_buffer();
}

void Sgd::update(Range range) {
  // Only a first update differs from the later ones: a coarser key makes longer runs.
  const auto key = [&](int i) { return RunKey{decays(i), updates(i) == 0 ? 0 : 1}; };
  parameters_->for_each_run(range, key, [&](Range run) {
    const SgdConstants constants{
        .lr = static_cast<float>(lr_),
        .momentum = static_cast<float>(options_.momentum),
        .dampening = static_cast<float>(options_.dampening),
        .weight_decay = static_cast<float>(decays(run.begin) ? options_.weight_decay : 0),
        .nesterov = options_.nesterov,
        .first_step = updates(run.begin) == 0,
        .control = control(),
    };
    Tensor values = parameters_->values(run);
    Tensor momentum = options_.momentum > 0 ? momentum_.view(*parameters_, run) : Tensor();
    if (launches()) kernels(values.device()).sgd(constants, parameters_->gradients(run), momentum, values);
    finish_update(run);
  });
}

NamedTensors Sgd::state() {
  NamedTensors out;
  if (options_.momentum > 0) append_state(out, "momentum", momentum_);
  append_updates(out);
  return out;
}

}  // namespace brigade::optim
