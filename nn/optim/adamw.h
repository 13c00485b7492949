// SPDX-License-Identifier: MIT
// nn/optim/adamw.h - Adam with decoupled weight decay (Loshchilov and Hutter, 2019), in PyTorch's form.
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

/// One update is functor::Adamw (kernels/functor/optimizer.h), which has the formula.
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
