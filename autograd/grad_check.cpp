// SPDX-License-Identifier: MIT
// autograd/grad_check.cpp - compares derivatives with central differences.
#include "autograd/grad_check.h"

#include <cmath>

#include "autograd/engine.h"
#include "autograd/no_grad.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

using Function = std::function<Variable(const std::vector<Variable>&)>;

// f = sum(function(inputs) * r), without recording.
double projected(const Function& function, const std::vector<Variable>& inputs,
                 const std::vector<double>& r) {
  const NoGrad no_grad;
  const std::vector<double> y = function(inputs).value().to_vector<double>();
  double total = 0;
  for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * r[i];
  return total;
}

// Element `index` (in row-major order) of a tensor of any strides.
double* element(const Tensor& t, std::int64_t index) {
  std::int64_t offset = 0;
  for (int d = t.dims() - 1; d >= 0; --d) {
    offset += index % t.size(d) * t.stride(d);
    index /= t.size(d);
  }
  return t.data<double>() + offset;
}

// Writes one element. The version moves with it, as for every write: a function that keeps state between its
// calls and compares versions must not take the old tensor for the new one.
void set(const Tensor& t, double* where, double value) {
  *where = value;
  t.bump_version();
}

}  // namespace

GradCheckResult grad_check(const Function& function, std::vector<Variable> inputs,
                           const GradCheckOptions& options) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& value = inputs[i].value();
    BRIGADE_CHECK(inputs[i].is_leaf() && value.dtype() == DType::f64 && value.device() == Device(),
                  "grad_check: inputs must be f64 leaves on the CPU; got input ", i, ": ", value,
                  inputs[i].is_leaf() ? "" : ", the result of an operation");
  }

  // A random projection makes the result a scalar, and no error can hide: a sum alone, say, would
  // miss a softmax gradient that is zero everywhere.
  const Variable y = function(inputs);
  BRIGADE_CHECK(y.dtype() == DType::f64, "grad_check: the function must return f64; got ", y.value());
  Generator generator{.seed = 20230117};
  const Tensor r = ops::randn(y.shape(), generator, 0, 1, DType::f64);
  const std::vector<double> projection = r.to_vector<double>();
  const std::vector<Tensor> analytic = grad(y, inputs, {.gradient = r});

  GradCheckResult result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const Tensor& value = inputs[i].value();
    // An input that the result does not depend on has no gradient: zero.
    const Tensor gradient = analytic[i].defined() ? analytic[i] : Tensor::zeros(value.shape(), DType::f64);
    const std::vector<double> slopes = gradient.to_vector<double>();
    for (std::int64_t k = 0; k < value.numel(); ++k) {
      double* x = element(value, k);
      const double before = *x;
      set(value, x, before + options.step);
      const double above = projected(function, inputs, projection);
      set(value, x, before - options.step);
      const double below = projected(function, inputs, projection);
      set(value, x, before);

      const double numeric = (above - below) / (2 * options.step);
      const double slope = slopes[static_cast<std::size_t>(k)];
      double error = std::abs(slope - numeric) / std::max(1.0, std::abs(numeric));
      if (std::isnan(error)) error = INFINITY;  // Compares false with everything otherwise.
      if (error > options.tolerance) result.passed = false;
      if (error > result.worst_error || result.message.empty()) {
        result.worst_error = error;
        result.message = str("grad_check: input ", i, " ", value.shape(), ", element ", k, ": derivative ",
                             slope, ", central difference ", numeric);
      }
    }
  }
  return result;
}

}  // namespace brigade
