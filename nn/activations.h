// SPDX-License-Identifier: MIT
// nn/activations.h - layers without parameters that work element by element.
#pragma once

#include "autograd/ops/pointwise.h"
#include "nn/module.h"

namespace brigade::nn {

class ReLU final : public Module {
 public:
  Variable forward(const Variable& x) override { return relu(x); }
};

/// With the exact error function, as PyTorch's default.
class GELU : public Module {
 public:
  Variable forward(const Variable& x) override { return gelu(x); }
};

class Sigmoid : public Module {
 public:
  Variable forward(const Variable& x) override { return sigmoid(x); }
};

class Tanh : public Module {
 public:
  Variable forward(const Variable& x) override { return tanh(x); }
};

/// In training zeroes each element with probability p and scales the rest by 1 / (1 - p);
/// the identity in evaluation.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {
    BRIGADE_CHECK(p >= 0 && p < 1, "Dropout: p must lie in [0, 1); got ", p);
  }
  Variable forward(const Variable& x) override { return training() && p_ > 0 ? dropout(x, p_) : x; }

 private:
  double p_;
};

}  // namespace brigade::nn
