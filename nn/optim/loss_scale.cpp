// SPDX-License-Identifier: MIT
// nn/optim/loss_scale.cpp - see the header.
#include "nn/optim/loss_scale.h"

#include <cmath>

#include "kernels/ops.h"

namespace brigade::optim {

LossScale::LossScale(FlatParameters& parameters, const LossScaleOptions& options)
    : parameters_(&parameters), moves_(options.moves) {
  BRIGADE_CHECK(options.initial > 0 && std::isfinite(options.initial),
                "loss scale: must begin with a positive number; got ", options.initial);
  BRIGADE_CHECK(parameters.count() > 0, "loss scale: there are no parameters");
  const Device device = parameters.at(0).variable.value().device();
  scale_ = ops::full({1}, options.initial, DType::f32, device);
  good_steps_ = ops::full({1}, 0, DType::i32, device);
  parameters.set_grad_scale(scale_);
}

BackwardOptions LossScale::backward_of(const Variable& loss) const {
  BRIGADE_CHECK(loss.numel() == 1 && loss.dtype() == DType::f32, "loss scale: needs a loss of one f32; got ",
                loss.value());
  return {.gradient = scale_.view(loss.shape())};
}

void LossScale::update(bool skipped) {
  const Tensor& flag = parameters_->skip_flag();
  const Tensor found = flag.defined() ? flag : ops::full({1}, skipped ? 1 : 0, DType::i32, scale_.device());
  ops::update_loss_scale(moves_, found, scale_, good_steps_);
}

NamedTensors LossScale::state() const {
  return {{"loss_scale.scale", scale_}, {"loss_scale.good_steps", good_steps_}};
}

}  // namespace brigade::optim
