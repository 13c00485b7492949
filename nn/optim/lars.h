// SPDX-License-Identifier: MIT
// nn/optim/lars.h - layer-wise adaptive rates for large batches (You, Gitman and Ginsburg, 2017).
// Read before: nn/optim/sgd.h.
#pragma once

#include "nn/optim/optimizer.h"

namespace brigade::optim {

struct LarsOptions {
  double momentum = 0.9;
  double weight_decay = 0;
  double trust = 1e-3;  ///< The paper's η.
  /// `matrices` also leaves norm and bias parameters without a trust ratio: theirs is 1, as is usual.
  DecayOn decay = DecayOn::matrices;
};

/// For each parameter: ratio = trust |p| / (|g| + weight_decay |p|), 1 where a norm is 0;
/// buf = momentum buf + ratio (g + weight_decay p);  p -= lr buf.
/// The learning rate stands outside buf (as in PyTorch's SGD), so that changing it acts at once. On a device norms and
/// ratio stay there: nobody waits for them.
class Lars : public Optimizer {
 public:
  Lars(FlatParameters& parameters, double lr, const LarsOptions& options = {});
  void update(Range range) override;
  NamedTensors state() override;

 private:
  double trust_ratio(int position) const;
  void update_on_device(Range run, SgdConstants constants);

  LarsOptions options_;
  FlatBuffer momentum_;  // Empty without momentum.
  Tensor ratios_;        // Of a device, f32 by position.
};

}  // namespace brigade::optim
