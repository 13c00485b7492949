// SPDX-License-Identifier: MIT
// tests/autograd/ops_precision_test.cpp - mixed precision: bf16 activations beside f32 parameters. bf16 keeps
// 8 bits, so a rounding is worth 0.4 %; sums are in f32. Gradients must then be within 2 % of the f32 ones,
// relative to the largest.
#include <cmath>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/conv.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/shape_ops.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;

namespace {

using Function = std::function<Variable(const Variable& x, const std::vector<Variable>& parameters)>;

constexpr double kTolerance = 2e-2;

// Empty if `narrow` is `wide` up to 2 % of wide's largest element.
std::string far(const Tensor& narrow, const Tensor& wide) {
  double largest = 0;
  for (const double value : values(wide)) largest = std::max(largest, std::abs(value));
  return differs(narrow, wide, 0, kTolerance * largest);
}

// Runs `function` with x in f32 and in bf16 and compares value and gradients.
void compare(const Function& function, const Tensor& x, std::vector<Tensor> parameter_values) {
  std::vector<Variable> parameters;
  for (const Tensor& value : parameter_values) parameters.push_back(Variable::parameter(value));
  const Variable wide = Variable::parameter(x), narrow = Variable::parameter(ops::cast(x, DType::bf16));
  const Variable expected = function(wide, parameters), got = function(narrow, parameters);
  REQUIRE(got.dtype() == DType::bf16);
  REQUIRE(got.value().memory_format() == expected.value().memory_format());
  REQUIRE(far(got.value(), expected.value()) == "");

  const Tensor dy = random(expected.shape(), 9);
  std::vector<Variable> wide_inputs = parameters, narrow_inputs = parameters;
  wide_inputs.push_back(wide);
  narrow_inputs.push_back(narrow);
  const auto expected_gradients = grad(expected, wide_inputs, {.gradient = dy});
  const auto got_gradients = grad(got, narrow_inputs, {.gradient = ops::cast(dy, DType::bf16)});
  for (std::size_t i = 0; i < wide_inputs.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got_gradients[i].dtype() == (i < parameters.size() ? DType::f32 : DType::bf16));
    REQUIRE(far(got_gradients[i], expected_gradients[i]) == "");
  }
}

}  // namespace

TEST_CASE("linear in bf16 stays close to f32 and gives its parameters f32 gradients", "[autograd][bf16]") {
  compare([](const Variable& x, const auto& p) { return linear(x, p[0], p[1]); }, random({8, 32}, 1),
          {random({16, 32}, 2), random({16}, 3)});
  compare([](const Variable& x, const auto& p) { return linear(x, p[0], Variable()); }, random({2, 4, 32}, 1),
          {random({16, 32}, 2)});
}

TEST_CASE("conv2d in bf16 stays close to f32 and gives its parameters f32 gradients", "[autograd][bf16]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  const Tensor x = random({2, 16, 8, 8}, 1, DType::f32, format);
  for (const std::int64_t stride : {1, 2}) {
    CAPTURE(stride);
    const Window window{.stride = {stride, stride}, .padding = {1, 1}};
    compare([&](const Variable& in, const auto& p) { return conv2d(in, p[0], p[1], window); }, x,
            {random({16, 16, 3, 3}, 2), random({16}, 3)});
  }
}

TEST_CASE("norms in bf16 stay close to f32 and give their parameters f32 gradients", "[autograd][bf16]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  const Tensor x = random({4, 16, 6, 6}, 1, DType::f32, format);
  const std::vector<Tensor> parameters = {random({16}, 2), random({16}, 3)};
  compare([](const Variable& in, const auto& p) { return batch_norm_train(in, p[0], p[1], {}, 0.1, 1e-5); },
          x, parameters);
  const RunningStats running{random({16}, 4), ops::full({16}, 1.5)};
  compare([&](const Variable& in, const auto& p) { return batch_norm_eval(in, p[0], p[1], running, 1e-5); },
          x, parameters);
  compare([](const Variable& in, const auto& p) { return layer_norm(in, p[0], p[1], 1e-5); },
          random({6, 16}, 1), parameters);
}

TEST_CASE("batch_norm in bf16 keeps its running statistics in f32", "[autograd][bf16]") {
  const RunningStats wide{Tensor::zeros({4}), ops::full({4}, 1)},
      narrow{Tensor::zeros({4}), ops::full({4}, 1)};
  const Tensor x = ops::cast(random({16, 4, 3, 3}, 1), DType::bf16);
  const Variable none;
  // The same rounded numbers in both: only the storage of x differs.
  (void)batch_norm_train(ops::cast(x, DType::f32), none, none, wide, 0.1, 1e-5);
  (void)batch_norm_train(x, none, none, narrow, 0.1, 1e-5);
  REQUIRE(narrow.var.dtype() == DType::f32);
  REQUIRE(differs(narrow.mean, wide.mean, 1e-5, 1e-7) == "");
  REQUIRE(differs(narrow.var, wide.var, 1e-5, 1e-7) == "");
}

TEST_CASE("cross_entropy of bf16 logits has an f32 loss and bf16 gradients", "[autograd][bf16]") {
  const Tensor labels = Tensor::from<std::int64_t>({1, 0, 4}, {3});
  const Variable wide = Variable::parameter(random({3, 5}, 1));
  const Variable narrow = Variable::parameter(ops::cast(wide.value(), DType::bf16));
  const Variable expected = cross_entropy(wide, labels), got = cross_entropy(narrow, labels);
  REQUIRE(got.dtype() == DType::f32);
  REQUIRE(far(got.value(), expected.value()) == "");
  backward(expected);
  backward(got);
  REQUIRE(narrow.grad().dtype() == DType::bf16);
  REQUIRE(far(narrow.grad(), wide.grad()) == "");
}

TEST_CASE("pooling in bf16 stays close to f32", "[autograd][bf16]") {
  const Tensor x = random({2, 4, 6, 6}, 1, DType::f32, MemoryFormat::channels_last);
  const Window window{.kernel = {2, 2}, .stride = {2, 2}};
  // Values that bf16 can hold, so that rounding cannot change which element is the largest.
  const Tensor exact = ops::cast(ops::cast(x, DType::bf16), DType::f32);
  compare([&](const Variable& in, const auto&) { return max_pool2d(in, window); }, exact, {});
  compare([&](const Variable& in, const auto&) { return avg_pool2d(in, window); }, x, {});
  compare([&](const Variable& in, const auto&) { return adaptive_avg_pool2d(in, 1, 1); }, x, {});
}

TEST_CASE("a bf16 chain from f32 images to an f32 loss trains f32 parameters", "[autograd][bf16]") {
  const Variable w = Variable::parameter(random({8, 3, 3, 3}, 1)),
                 head = Variable::parameter(random({5, 8}, 2));
  const Variable gamma = Variable::parameter(ops::full({8}, 1)),
                 beta = Variable::parameter(Tensor::zeros({8}));
  const Tensor images = random({4, 3, 8, 8}, 3, DType::f32, MemoryFormat::channels_last);
  const Tensor labels = Tensor::from<std::int64_t>({1, 0, 4, 2}, {4});
  const auto loss = [&](DType dtype) {
    Variable x = cast(images, dtype);
    x = batch_norm_train(conv2d(x, w, Variable(), {.padding = {1, 1}}), gamma, beta, {}, 0.1, 1e-5);
    x = flatten(adaptive_avg_pool2d(x * x, 1, 1));
    return cross_entropy(linear(x, head, Variable()), labels);
  };
  const std::vector<Variable> parameters = {w, gamma, beta, head};
  const auto expected = grad(loss(DType::f32), parameters), got = grad(loss(DType::bf16), parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].dtype() == DType::f32);
    // Rounding errors of five layers add up: 10 % of the largest here.
    double largest = 0;
    for (const double value : values(expected[i])) largest = std::max(largest, std::abs(value));
    REQUIRE(differs(got[i], expected[i], 0, 0.1 * largest) == "");
  }
}
