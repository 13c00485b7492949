// SPDX-License-Identifier: MIT
// nn/linear.h - the affine layer y = x wᵀ + b. Read before: nn/module.h. Read next: nn/conv2d.h.
#pragma once

#include "nn/activations.h"

namespace brigade::nn {

struct LinearOptions {
  bool bias = true;
};

/// x [.., in] -> [.., out]; parameters weight [out, in], bias [out], drawn from default_generator().
class Linear final : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, const LinearOptions& options = {});
  /// Uses parameters that exist already: a weight given to two modules is one parameter with two names (tied
  /// weights). `bias` may be undefined.
  explicit Linear(Variable weight, Variable bias = {});

  Variable forward(const Variable& x) override;
  using Module::operator();
  /// then((*this)(x)) to the bit, with a tensor less to write. Layers and graph are those of the two.
  Variable operator()(const Variable& x, ReLU& then);

  const Variable weight;
  const Variable bias;  ///< Undefined without bias.
};

}  // namespace brigade::nn
