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

double clip_grad_norm(FlatParameters& parameters, double max_norm) {
  BRIGADE_CHECK(max_norm > 0, "clip: max_norm must be positive; got ", max_norm);
  const double norm = grad_norm(parameters);
  const double factor = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || factor >= 1) return norm;
  const auto all_alike = [](int) { return 0; };
  parameters.for_each_run(parameters.all(), all_alike, [&](Range run) {
    Tensor gradients = parameters.gradients(run);
    ops::mul_(gradients, factor);
  });
  return norm;
}

}  // namespace brigade::optim
