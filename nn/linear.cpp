// SPDX-License-Identifier: MIT
// nn/linear.cpp - construction and forward of the affine layer.
#include "nn/linear.h"

#include "autograd/ops/matmul.h"
#include "nn/init.h"

namespace brigade::nn {

namespace {

Variable new_weight(std::int64_t in, std::int64_t out) {
  BRIGADE_CHECK(in > 0 && out > 0, "Linear: sizes must be positive; got in ", in, ", out ", out);
  return Variable::parameter(Tensor::empty({out, in}));
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options)
    : Linear(new_weight(in, out), options.bias ? Variable::parameter(Tensor::empty({out})) : Variable()) {
  default_init_(weight.value(), bias.defined() ? bias.value() : Tensor(), default_generator());
}

Linear::Linear(Variable weight_, Variable bias_) : weight(std::move(weight_)), bias(std::move(bias_)) {
  register_parameter("weight", weight);
  BRIGADE_CHECK(weight.dims() == 2, "Linear: weight must be [out, in]; got ", weight.shape());
  if (!bias.defined()) return;
  register_parameter("bias", bias);
  BRIGADE_CHECK(bias.shape() == Shape{weight.size(0)}, "Linear: bias must be [out]; got weight ",
                weight.shape(), ", bias ", bias.shape());
}

Variable Linear::forward(const Variable& x) { return linear(x, weight, bias); }

Variable Linear::operator()(const Variable& x, ReLU& then) {
  if (faults_armed()) return then((*this)(x));  // A fault is for the result of the layer that it names.
  LinearBeforeRelu y;
  {
    const TimedScope span(SpanKind::forward, layer());
    y = linear_before_relu(x, weight, bias);
  }
  const TimedScope span(SpanKind::forward, then.layer());
  return relu(y);
}

}  // namespace brigade::nn
