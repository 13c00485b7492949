// SPDX-License-Identifier: MIT
// nn/optim/sgd.h - stochastic gradient descent with momentum, in PyTorch's form.
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

/// One update is functor::Sgd (kernels/functor/optimizer.h), which has the formula.
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
