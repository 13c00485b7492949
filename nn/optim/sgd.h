// SPDX-License-Identifier: MIT
// nn/optim/sgd.h - stochastic gradient descent with momentum, in PyTorch's form.
// The formula, once for every device: kernels/functor/optimizer.h.
#pragma once

#include "nn/optim/optimizer.h"

namespace brigade::optim {

struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  ///< Needs momentum and no dampening.
  DecayOn decay = DecayOn::all;
};

/// g += weight_decay p;  buf = momentum buf + (1 - dampening) g  (a parameter's first update: buf = g);
/// p -= lr (nesterov ? g + momentum buf : buf).
class Sgd : public Optimizer {
 public:
  Sgd(FlatParameters& parameters, double lr, const SgdOptions& options = {});
  void update(Range range) override;
  NamedTensors state() override;

 private:
  SgdOptions options_;
  FlatBuffer momentum_;  // Empty without momentum.
};

}  // namespace brigade::optim
