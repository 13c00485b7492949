// SPDX-License-Identifier: MIT
// nn/folded_net.h - a trained convolutional classifier as a list of steps for inference, with every batch norm folded
// into the convolution before it. Models make one (ResNet::folded); nn/inference_net.h runs it in a precision.
// Read before: nn/conv2d.h, nn/batch_norm.h.
#pragma once

#include <vector>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"

namespace brigade::nn {

/// Values are numbered: 0 is the images, i + 1 what step i makes.
struct FoldedStep {
  int input = 0;
  int residual = -1;  ///< Added to the convolution's result; -1: nothing.
  Window window{};
  bool relu = false;
  Tensor weight{}, bias{};  ///< f32 OIHW and [O]. Undefined: max pooling.

  bool is_convolution() const { return weight.defined(); }
};

/// What follows a convolution and its batch norm.
struct FoldedThen {
  bool relu = false;
  int residual = -1;
};

/// logits = mean over pixels of the last value · weightᵀ + bias
struct FoldedNet {
  std::vector<FoldedStep> steps;
  Tensor weight, bias;

  int values() const { return static_cast<int>(steps.size()) + 1; }

  /// Append a step that reads value `input` and return the number of the value it makes.
  ///
  /// Evaluation computes norm(y) = gamma (y - mean) / sqrt(var + epsilon) + beta for y = conv(x), which is another
  /// convolution: with factor = gamma / sqrt(var + epsilon), the weights of each output channel times its factor, and
  /// the bias beta + (bias - mean) factor.
  int add(int input, const Conv2d& conv, const BatchNorm2d& norm, const FoldedThen& then = {});
  int add_max_pool(int input, const Window& window);
  /// The classifier at the end.
  void finish(const Linear& linear);
};

}  // namespace brigade::nn
