// SPDX-License-Identifier: MIT
// models/mlp.h - the multilayer perceptron: the smallest model that learns. Read next: models/resnet.h.
#pragma once

#include <vector>

#include "nn/sequential.h"

namespace brigade::models {

struct MlpOptions {
  std::int64_t inputs = 3 * 32 * 32;
  std::vector<std::int64_t> hidden = {256, 128};
  std::int64_t classes = 10;
  DType precision = DType::f32;  ///< Of activations; parameters and logits are f32.
  bool checkpoint_activations = false;
};

/// x [N, ..] with `inputs` elements an image -> logits [N, classes]: Linear layers with ReLU between, called
/// "layers.0", "layers.2", … as the Sequential they are.
class Mlp : public nn::Module {
 public:
  explicit Mlp(const MlpOptions& options);
  Variable forward(const Variable& x) override;

 private:
  MlpOptions options_;
  nn::Sequential layers_;
};

}  // namespace brigade::models
