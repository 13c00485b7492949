// SPDX-License-Identifier: MIT
// nn/optim/adamw.h - Adam with decoupled weight decay (Loshchilov and Hutter, 2019), in PyTorch's form.
// The formula, once for every device: kernels/functor/optimizer.h.
#pragma once

#include "nn/optim/optimizer.h"

namespace brigade::optim {

struct AdamwOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  DecayOn decay = DecayOn::all;
};

/// p *= 1 - lr weight_decay;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g²;
/// p -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon), where t counts the parameter's own
/// updates.
class Adamw : public Optimizer {
 public:
  Adamw(FlatParameters& parameters, double lr, const AdamwOptions& options = {});
  void update(Range range) override;
  NamedTensors state() override;

 private:
  AdamwOptions options_;
  FlatBuffer first_moment_, second_moment_;
};

}  // namespace brigade::optim
