// SPDX-License-Identifier: MIT
// nn/folded_net.cpp - folding.
#include "nn/folded_net.h"

#include "kernels/ops.h"

namespace brigade::nn {

int FoldedNet::add(int input, const Conv2d& conv, const BatchNorm2d& norm, const FoldedThen& then) {
  const Tensor& kernel = conv.weight.value();
  const std::int64_t channels = kernel.size(0);
  BRIGADE_CHECK(norm.weight.numel() == channels, "FoldedNet: a convolution with ", channels,
                " output channels needs a batch norm over as many; got ", norm.weight.numel());
  // In double: what is folded once should not add errors of its own.
  const auto wide = [](const Tensor& t) { return ops::cast(t, DType::f64); };
  const RunningStats& statistics = norm.running();
  const Tensor deviation =
      ops::unary(Unary::sqrt, ops::binary(Binary::add, wide(statistics.var), norm.epsilon()));
  const Tensor factor = ops::div(wide(norm.weight.value()), deviation);
  Tensor shift = ops::mul(wide(statistics.mean), -1);
  if (conv.bias.defined()) shift = ops::add(shift, wide(conv.bias.value()));
  const Tensor offset = ops::add(wide(norm.bias.value()), ops::mul(shift, factor));
  steps.push_back({.input = input,
                   .residual = then.residual,
                   .window = conv.window(),
                   .relu = then.relu,
                   .weight = ops::cast(ops::mul(wide(kernel), factor.view({channels, 1, 1, 1})), DType::f32),
                   .bias = ops::cast(offset, DType::f32)});
  return values() - 1;
}

int FoldedNet::add_max_pool(int input, const Window& window) {
  steps.push_back({.input = input, .window = window});
  return values() - 1;
}

void FoldedNet::finish(const Linear& linear) {
  weight = ops::clone(linear.weight.value());
  bias = linear.bias.defined() ? ops::clone(linear.bias.value()) : Tensor();
}

}  // namespace brigade::nn
