// SPDX-License-Identifier: MIT
// tests/parity/recipe.h - ten steps of ResNet-18 whose every number is a formula, so that another framework can
// take the same ones: tests/parity/oracle.py is the same recipe for PyTorch, written independently.
#pragma once

#include <vector>

#include "models/resnet.h"

namespace brigade::test::parity {

inline constexpr int kSteps = 10;

/// ResNet-18, CIFAR stem, with the recipe's initial values.
std::unique_ptr<models::ResNet> make_model();

struct Batch {
  Tensor images;  ///< f32 [8, 3, 32, 32]
  Tensor labels;  ///< i64 [8]
};
Batch batch(int step);

/// Takes the steps; returns the loss of each.
std::vector<double> train(models::ResNet& model);

}  // namespace brigade::test::parity
