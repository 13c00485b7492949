// SPDX-License-Identifier: MIT
// nn/init.h - initial values of parameters, as in torch.nn.init.
// A value is a function of the generator's (seed, stream) and the element's index only, so every rank that
// starts from the same seed and builds the same model holds the same parameters.
#pragma once

#include "core/rng.h"
#include "core/tensor.h"

namespace brigade::nn {

/// Inputs that one output sums over, and outputs that one input reaches: of a weight [O, I, …], I and O times
/// the product of the remaining (kernel) sizes. Throws Error on fewer than two dims.
struct Fans {
  std::int64_t in = 0, out = 0;
};
Fans fans(const Shape& weight);

/// Which of the two keeps its variance: forward (fan in) or backward (fan out).
enum class Fan : std::uint8_t { in, out };

struct KaimingOptions {
  double negative_slope = 0;  ///< Of the leaky ReLU that follows; 0 is ReLU.
  Fan fan = Fan::in;
};

/// Variance 2 / ((1 + negative_slope²) fan). He et al., "Delving deep into rectifiers", 2015.
void kaiming_uniform_(Tensor weight, Generator& generator, const KaimingOptions& options = {});
void kaiming_normal_(Tensor weight, Generator& generator, const KaimingOptions& options = {});

/// Variance 2 gain² / (fan in + fan out). Glorot and Bengio, 2010.
void xavier_uniform_(Tensor weight, Generator& generator, double gain = 1);
void xavier_normal_(Tensor weight, Generator& generator, double gain = 1);

/// PyTorch's default of Linear and Conv2d: weight and bias uniform in ± 1 / sqrt(fan in of the weight).
/// `bias` may be undefined.
void default_init_(Tensor weight, Tensor bias, Generator& generator);

}  // namespace brigade::nn
