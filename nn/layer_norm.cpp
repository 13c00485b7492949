// SPDX-License-Identifier: MIT
// nn/layer_norm.cpp - construction and forward of layer normalisation.
#include "nn/layer_norm.h"

#include "autograd/ops/norm.h"
#include "kernels/ops.h"

namespace brigade::nn {

LayerNorm::LayerNorm(std::int64_t size, const LayerNormOptions& options)
    : weight(register_parameter("weight", Variable::parameter(ops::full({size}, 1)))),
      bias(register_parameter("bias", Variable::parameter(Tensor::zeros({size})))),
      options_(options) {}

Variable LayerNorm::forward(const Variable& x) { return layer_norm(x, weight, bias, options_.epsilon); }

}  // namespace brigade::nn
