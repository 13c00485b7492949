// SPDX-License-Identifier: MIT
// autograd/ops/pointwise.cpp - derivatives of functions of one variable. Where the derivative can
// be written with the result, the result is kept: the next operation usually keeps the same
// tensor, so it costs no memory.
#include "autograd/ops/pointwise.h"

#include "autograd/ops/support.h"
#include "core/rng.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

// y = f(x), whose derivative row in the kernel table takes the result: dx = f'(y) dy.
Variable from_result(std::string_view op, Unary function, Binary derivative, const Variable& x) {
  const Tensor y = ops::unary(function, x.value());
  return record(op, y, {x}, [y_kept = SavedTensor(y), derivative](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, ops::binary(derivative, dy, out.load(y_kept)));
  });
}

// The same with a row that takes the input: dx = f'(x) dy.
Variable from_input(std::string_view op, Unary function, Binary derivative, const Variable& x) {
  return record(op, ops::unary(function, x.value()), {x},
                [x_kept = SavedTensor(x.value()), derivative](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::binary(derivative, dy, out.load(x_kept)));
                });
}

}  // namespace

// y = eˣ   =>   dx = dy y
Variable exp(const Variable& x) { return from_result("exp", Unary::exp, Binary::mul, x); }

// y = ln x   =>   dx = dy / x
Variable log(const Variable& x) { return from_input("log", Unary::log, Binary::div, x); }

// y = √x   =>   dx = dy / (2 y)
Variable sqrt(const Variable& x) {
  const Tensor y = ops::unary(Unary::sqrt, x.value());
  return record("sqrt", y, {x}, [y_kept = SavedTensor(y)](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, ops::mul(ops::div(dy, out.load(y_kept)), 0.5));
  });
}

// y = |x|   =>   dx = dy sign(x), with sign(0) = 0
Variable abs(const Variable& x) {
  return record("abs", ops::unary(Unary::abs, x.value()), {x},
                [x_kept = SavedTensor(x.value())](const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  const Tensor input = out.load(x_kept);
                  const Tensor above = ops::cast(ops::binary(Binary::gt, input, 0.0), dy.dtype());
                  const Tensor below = ops::cast(ops::binary(Binary::lt, input, 0.0), dy.dtype());
                  out.give(0, ops::mul(dy, ops::sub(above, below)));
                });
}

// y = tanh x   =>   dx = dy (1 - y²)
Variable tanh(const Variable& x) { return from_result("tanh", Unary::tanh, Binary::tanh_grad, x); }

// y = 1 / (1 + e⁻ˣ)   =>   dx = dy y (1 - y)
Variable sigmoid(const Variable& x) {
  return from_result("sigmoid", Unary::sigmoid, Binary::sigmoid_grad, x);
}

// y = max(x, 0)   =>   dx = dy where y > 0, else 0
Variable relu(const Variable& x) { return from_result("relu", Unary::relu, Binary::relu_grad, x); }

// y = x Φ(x)   =>   dx = dy (Φ(x) + x φ(x)), with φ = Φ' the normal density
Variable gelu(const Variable& x) { return from_input("gelu", Unary::gelu, Binary::gelu_grad, x); }

// y = m x / (1 - p), m = 0 or 1   =>   dx = m dy / (1 - p): the same function, with the same random numbers.
// Two integers name those numbers, so no mask is kept between forward and backward.
Variable dropout(const Variable& x, double p) {
  BRIGADE_CHECK(p >= 0 && p < 1, "dropout: p must be in [0, 1); got p ", p);
  if (p == 0) return x;
  Generator& generator = default_generator();
  const std::uint64_t seed = generator.seed, stream = generator.take();
  return record("dropout", ops::dropout(x.value(), p, seed, stream), {x},
                [p, seed, stream](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::dropout(dy, p, seed, stream));
                });
}

}  // namespace brigade
