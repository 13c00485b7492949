// SPDX-License-Identifier: MIT
// nn/optim/clip.cpp - norm and scaling over flat gradients.
#include "nn/optim/clip.h"

#include <cmath>

#include "kernels/ops.h"

namespace brigade::optim {

double grad_norm(const FlatParameters& parameters) {
  double squares = 0;
  for (const int i : parameters.in_registration_order())
    if (const Tensor grad = parameters.at(i).variable.grad(); grad.defined())
      squares += ops::sum_of_squares(grad);
  return std::sqrt(squares) / parameters.grad_scale();
}

void scale_to_norm(FlatParameters& parameters, double norm, double max_norm) {
  BRIGADE_CHECK(max_norm > 0, "clip: max_norm must be positive; got ", max_norm);
  const double factor = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || factor >= 1) return;
  const auto all_alike = [](int) { return 0; };
  parameters.for_each_run(parameters.all(), all_alike, [&](Range run) {
    Tensor gradients = parameters.gradients(run);
    ops::mul_(gradients, factor);
  });
}

double clip_grad_norm(FlatParameters& parameters, double max_norm) {
  const double norm = grad_norm(parameters);
  scale_to_norm(parameters, norm, max_norm);
  return norm;
}

// Gaps between gradients are zeros.
Tensor clip_on_device(FlatParameters& parameters, double max_norm) {
  const Device device = parameters.at(0).variable.value().device();
  Tensor squares = Tensor::zeros({1}, DType::f64, device), part = Tensor::empty({1}, DType::f64, device);
  for (const auto& [range, dtype] : parameters.dtype_runs()) {
    ops::sum_of_squares(parameters.gradients(range), part);
    ops::add_(squares, part);
  }
  if (const Tensor& scale = parameters.grad_scale_memory(); scale.defined()) {
    const Tensor wide = ops::cast(scale, DType::f64);
    ops::binary_(Binary::div, squares, ops::mul(wide, wide));
  }
  Tensor factor = Tensor::empty({1}, DType::f32, device);
  ops::clip_factor(max_norm, squares, factor);
  parameters.set_clip(factor);
  return squares;
}

}  // namespace brigade::optim
