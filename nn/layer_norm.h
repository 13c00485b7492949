// SPDX-License-Identifier: MIT
// nn/layer_norm.h - normalisation over the last dim. Read before: nn/batch_norm.h.
#pragma once

#include "nn/module.h"

namespace brigade::nn {

struct LayerNormOptions {
  double epsilon = 1e-5;
};

/// x [.., size] -> same; parameters weight [size] (1) and bias [size] (0).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t size, const LayerNormOptions& options = {});
  Variable forward(const Variable& x) override;

  const Variable weight;
  const Variable bias;

 private:
  LayerNormOptions options_;
};

}  // namespace brigade::nn
