// SPDX-License-Identifier: MIT
// nn/optim/loss_scale.h - keeps gradients of f16 activations from vanishing (Micikevicius et al., "Mixed precision
// training", ICLR 2018, section 3.2): the loss is multiplied by a large number before backward, optimizers divide by
// it, and the number moves: down where a gradient overflowed, up after a long while in which none did.
//
//   LossScale scale(parameters);
//   …
//   backward(loss, scale.backward_of(loss));
//   optimizer.step();              // Divides; does nothing where a gradient is not finite.
//   scale.update(ddp.skipped());
//
// Read before: nn/optim/flat_parameters.h, kernels/functor/optimizer.h (move_loss_scale).
#pragma once

#include "autograd/engine.h"
#include "core/safetensors.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::optim {

struct LossScaleOptions {
  double initial = 65536;
  LossScaleConstants moves = {};
};

/// Scale and count of good steps lie where the parameters do, and a device moves them by its own flag: nobody waits.
/// Ranks that skip alike keep equal scales.
class LossScale {
 public:
  /// Optimizers of `parameters`, which must outlive this, divide gradients from now on.
  explicit LossScale(FlatParameters& parameters, const LossScaleOptions& options = {});

  /// For the backward of an f32 loss of one element: its gradient is the scale instead of one.
  BackwardOptions backward_of(const Variable& loss) const;
  /// After the optimizer's step. `skipped`: the host knows that the step did not count. Where a device decides that
  /// (FlatParameters::set_skip), its flag counts instead.
  void update(bool skipped);
  double value() const { return parameters_->grad_scale(); }  ///< Waits for a device.

  /// "loss_scale.scale", "loss_scale.good_steps", sharing memory: for checkpoints.
  NamedTensors state() const;

 private:
  FlatParameters* parameters_;
  LossScaleConstants moves_;
  Tensor scale_, good_steps_;
};

}  // namespace brigade::optim
