// SPDX-License-Identifier: MIT
// kernels/cuda/optimizer.cpp - optimizer steps over flat memory, one launch each, and what decides about them on the
// device: flags of values that are not finite, the scale of an f16 loss.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {
namespace {

void check_floating(std::string_view op, const Tensor& t) {
  BRIGADE_CHECK(is_floating(t.dtype()), op, ": needs a floating dtype; got ", t.dtype());
}

}  // namespace

void sgd(const SgdConstants& k, const Tensor& grad, Tensor& momentum, Tensor& param) {
  check_floating("sgd", param);
  launched(device::sgd(k, param.dtype(), grad.raw(), k.momentum == 0 ? nullptr : momentum.raw(), param.raw(),
                       param.numel(), stream_of(param)),
           "sgd");
}

void adamw(const AdamwConstants& k, const Tensor& grad, Tensor& m, Tensor& v, Tensor& param) {
  check_floating("adamw", param);
  launched(device::adamw(k, param.dtype(), grad.raw(), m.raw(), v.raw(), param.raw(), param.numel(),
                         stream_of(param)),
           "adamw");
}

void lerp(const Tensor& target, double weight, Tensor& average) {
  check_floating("lerp", average);
  launched(
      device::lerp(average.dtype(), target.raw(), weight, average.raw(), average.numel(), stream_of(average)),
      "lerp");
}

void clip_factor(double max_norm, const Tensor& squares, Tensor& factor) {
  launched(device::clip_factor(max_norm, squares.data<double>(), factor.data<float>(), stream_of(squares)),
           "clip_factor");
}

void trust_ratio(const TrustConstants& k, const Tensor& value_squares, const Tensor& grad_squares,
                 Tensor& ratio) {
  launched(device::trust_ratio(k, value_squares.data<double>(), grad_squares.data<double>(),
                               ratio.data<float>(), stream_of(ratio)),
           "trust_ratio");
}

void flag_non_finite(const Tensor& x, Tensor& flags, std::int64_t index) {
  check_floating("flag_non_finite", x);
  std::int32_t* flag = flags.data<std::int32_t>() + index * flags.stride(0);
  for_each_part(plan_walk(Order::memory, x), [&](const device::Strided<1>& part, const std::int64_t* from) {
    launched(device::flag_non_finite(x.dtype(), at(x, from[0]), part, flag, stream_of(x)), "flag_non_finite");
  });
}

void update_loss_scale(const LossScaleConstants& k, const Tensor& found, Tensor& scale, Tensor& good_steps) {
  launched(device::update_loss_scale(k, found.data<std::int32_t>(), scale.data<float>(),
                                     good_steps.data<std::int32_t>(), stream_of(scale)),
           "update_loss_scale");
}

}  // namespace brigade::cuda
