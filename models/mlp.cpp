// SPDX-License-Identifier: MIT
// models/mlp.cpp - construction and forward of the multilayer perceptron.
#include "models/mlp.h"

#include "autograd/checkpoint.h"
#include "autograd/ops/shape_ops.h"
#include "nn/activations.h"
#include "nn/linear.h"

namespace brigade::models {

Mlp::Mlp(const MlpOptions& options) : options_(options) {
  std::int64_t width = options.inputs;
  for (const std::int64_t next : options.hidden) {
    layers_.emplace<nn::Linear>(width, next);
    layers_.emplace<nn::ReLU>();
    width = next;
  }
  layers_.emplace<nn::Linear>(width, options.classes);
  register_module("layers", layers_);
}

Variable Mlp::forward(const Variable& x) {
  BRIGADE_CHECK(x.dims() >= 2 && x.numel() == x.size(0) * options_.inputs, "mlp: x must be [N, ..] with ",
                options_.inputs, " elements an image; got ", x.shape());
  const Variable rows = cast(flatten(x, 1), options_.precision);
  const auto layers = [this](const Variable& v) { return layers_(v); };
  return cast(options_.checkpoint_activations ? checkpoint(layers, rows) : layers(rows), DType::f32);
}

}  // namespace brigade::models
