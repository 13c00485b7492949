// SPDX-License-Identifier: MIT
// tests/nn/layers_test.cpp - what each layer computes, on numbers small enough to check by hand.
#include "autograd/engine.h"
#include "autograd/ops/reduce.h"
#include "kernels/ops.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/pooling.h"
#include "nn/sequential.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using Values = std::vector<double>;

namespace {

Tensor of(const std::vector<float>& values, const Shape& shape) { return Tensor::from(values, shape); }

void set(const Variable& parameter, const std::vector<float>& values) {
  Tensor target = parameter.value();
  ops::copy_(target, of(values, parameter.shape()));
}

/// 1, 2, …, 16 as an image.
Tensor ramp() {
  std::vector<float> values(16);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return of(values, {1, 1, 4, 4});
}

// Sums of a few floats: rounding only.
constexpr double kRounding = 1e-6;

}  // namespace

TEST_CASE("Linear computes x wᵀ + b over any leading dims", "[nn][linear]") {
  nn::Linear layer(2, 3);
  set(layer.weight, {1, 2, 3, 4, 5, 6});
  set(layer.bias, {10, 20, 30});
  const Variable y = layer(of({1, 1, 2, 0}, {1, 2, 2}));
  REQUIRE(y.shape() == Shape{1, 2, 3});
  REQUIRE(test::values(y.value()) == Values{13, 27, 41, 12, 26, 40});
  nn::Linear plain(2, 3, {.bias = false});
  REQUIRE_FALSE(plain.bias.defined());
  REQUIRE(test::values(plain(Tensor::zeros({1, 2})).value()) == Values{0, 0, 0});
}

TEST_CASE("Linear refuses sizes and parameters that cannot be", "[nn][linear][error]") {
  CHECK_THROWS_WITH(nn::Linear(0, 3), ContainsSubstring("Linear: sizes must be positive; got in 0, out 3"));
  const auto parameter = [](const Shape& shape) { return Variable::parameter(Tensor::zeros(shape)); };
  CHECK_THROWS_WITH(nn::Linear(parameter({2, 3, 4})),
                    ContainsSubstring("weight must be [out, in]; got [2, 3, 4]"));
  CHECK_THROWS_WITH(nn::Linear(parameter({2, 3}), parameter({3})),
                    ContainsSubstring("weight [2, 3], bias [3]"));
}

TEST_CASE("Conv2d passes stride, padding and bias on", "[nn][conv2d]") {
  nn::Conv2d layer(1, 1, 3, {.stride = 2, .padding = 1});
  set(layer.weight, std::vector<float>(9, 1));
  set(layer.bias, {100});
  // Sums of the 3×3 neighbourhoods of elements (0, 0), (0, 2), (2, 0), (2, 2) of 1 … 16.
  REQUIRE(test::values(layer(ramp()).value()) == Values{114, 130, 157, 199});
}

TEST_CASE("Conv2d passes dilation and two-sided sizes on", "[nn][conv2d]") {
  nn::Conv2d layer(1, 1, nn::Size2(2, 1),
                   {.stride = nn::Size2(1, 2), .dilation = nn::Size2(3, 1), .bias = false});
  REQUIRE(layer.weight.shape() == Shape{1, 1, 2, 1});
  set(layer.weight, {1, 10});
  REQUIRE(test::values(layer(ramp()).value()) == Values{1 + 130, 3 + 150});
}

TEST_CASE("Conv2d with as many groups as channels scales each alone", "[nn][conv2d]") {
  nn::Conv2d layer(2, 2, 1, {.groups = 2, .bias = false});
  REQUIRE(layer.weight.shape() == Shape{2, 1, 1, 1});
  set(layer.weight, {2, 3});
  REQUIRE(test::values(layer(of({1, 10}, {1, 2, 1, 1})).value()) == Values{2, 30});
}

TEST_CASE("Conv2d refuses groups and sizes that cannot be", "[nn][conv2d][error]") {
  CHECK_THROWS_WITH(nn::Conv2d(3, 4, 3, {.groups = 2}), ContainsSubstring("got in 3, out 4, groups 2"));
  CHECK_THROWS_WITH(nn::Conv2d(3, 4, 0), ContainsSubstring("kernel 0 x 0"));
  CHECK_THROWS_WITH(nn::Conv2d(3, 4, 3, {.stride = 0}),
                    ContainsSubstring("stride and dilation must be positive"));
  CHECK_THROWS_WITH(nn::Conv2d(3, 4, 3, {.padding = -1}), ContainsSubstring("padding not negative"));
}

TEST_CASE("BatchNorm2d tracks the unbiased and normalises with the biased variance",
          "[nn][batch_norm][A12]") {
  nn::BatchNorm2d layer(1);
  const Variable y = layer(of({1, 2, 3, 4}, {4, 1, 1, 1}));
  const double scale = 1 / std::sqrt(1.25 + 1e-5);
  REQUIRE(test::differs(
              y.value(),
              Tensor::from<double>({-1.5 * scale, -0.5 * scale, 0.5 * scale, 1.5 * scale}, {4, 1, 1, 1}),
              kRounding) == "");
  const auto buffers = layer.named_buffers();
  REQUIRE_THAT(buffers.at(0).tensor.select(0, 0).item(), Catch::Matchers::WithinAbs(0.25, kRounding));
  REQUIRE_THAT(buffers.at(1).tensor.select(0, 0).item(),
               Catch::Matchers::WithinAbs(0.9 + 0.1 * 5 / 3, kRounding));
  REQUIRE(buffers.at(2).tensor.dtype() == DType::i64);
  REQUIRE(buffers.at(2).tensor.shape() == Shape{});
  REQUIRE(buffers.at(2).tensor.item() == 1);
}

TEST_CASE("BatchNorm2d in evaluation uses the running statistics and changes nothing", "[nn][batch_norm]") {
  nn::BatchNorm2d layer(2);
  set(layer.weight, {2, 3});
  set(layer.bias, {1, -1});
  auto buffers = layer.named_buffers();
  ops::copy_(buffers.at(0).tensor, of({5, 6}, {2}));
  ops::copy_(buffers.at(1).tensor, of({4, 9}, {2}));
  layer.eval();
  const Variable y = layer(of({7, 9}, {1, 2, 1, 1}));  // One value a channel is fine here.
  REQUIRE(test::differs(y.value(), of({3, 2}, {1, 2, 1, 1}), 1e-5) == "");  // epsilon is 1e-5
  REQUIRE(test::values(buffers.at(0).tensor) == Values{5, 6});
  REQUIRE(test::values(buffers.at(1).tensor) == Values{4, 9});
  REQUIRE(buffers.at(2).tensor.item() == 0);
}

TEST_CASE("BatchNorm2d refuses a single value per channel in training, and changes nothing",
          "[nn][batch_norm][error]") {
  nn::BatchNorm2d layer(3);
  REQUIRE_THROWS_WITH(
      layer(Tensor::zeros({1, 3, 1, 1})),
      ContainsSubstring("training needs more than one value per channel; got x [1, 3, 1, 1]"));
  REQUIRE(layer.named_buffers().at(2).tensor.item() == 0);
  REQUIRE_THROWS_WITH(layer(Tensor::zeros({2, 4, 1, 1})),
                      ContainsSubstring("must be [N, 3, H, W]; got [2, 4, 1, 1]"));
  REQUIRE_THROWS_WITH(layer(Tensor::zeros({2, 3})), ContainsSubstring("got [2, 3]"));
}

TEST_CASE("LayerNorm normalises each row", "[nn][layer_norm]") {
  nn::LayerNorm layer(2);
  set(layer.weight, {1, 2});
  set(layer.bias, {0, 5});
  const Variable y = layer(of({1, 3, -10, -20}, {2, 1, 2}));
  REQUIRE(test::differs(y.value(), of({-1, 7, 1, 3}, {2, 1, 2}), 1e-5) == "");  // epsilon is 1e-5
}

TEST_CASE("Embedding looks rows up and sums the gradients of equal ids", "[nn][embedding]") {
  nn::Embedding layer(3, 2);
  set(layer.weight, {0, 1, 10, 11, 20, 21});
  const Variable y = layer(Tensor::from<std::int64_t>({2, 0, 2}, {3, 1}));
  REQUIRE(y.shape() == Shape{3, 1, 2});
  REQUIRE(test::values(y.value()) == Values{20, 21, 0, 1, 20, 21});
  backward(sum(y));
  REQUIRE(test::values(layer.weight.grad()) == Values{1, 1, 0, 0, 2, 2});
  REQUIRE_THROWS_AS(layer(Tensor::from<std::int64_t>({3}, {1})), Error);
}

TEST_CASE("activation layers compute their function", "[nn][activation]") {
  const Tensor x = of({-1, 0, 2}, {3});
  const auto run = [&](nn::Module&& layer) { return layer(x).value(); };
  CHECK(test::values(run(nn::ReLU())) == Values{0, 0, 2});
  CHECK(test::differs(run(nn::GELU()), of({-0.15865525f, 0, 1.9544997f}, {3}), 1e-5) == "");
  CHECK(test::differs(run(nn::Sigmoid()), of({0.26894143f, 0.5f, 0.88079703f}, {3}), 1e-5) == "");
  CHECK(test::differs(run(nn::Tanh()), of({-0.76159416f, 0, 0.96402758f}, {3}), 1e-5) == "");
}

TEST_CASE("Dropout zeroes and rescales in training and is the identity in evaluation", "[nn][dropout]") {
  default_generator() = {.seed = 1};
  nn::Dropout layer(0.25);
  const Tensor x = ops::full({10000}, 3);
  int zeros = 0;
  for (const double v : test::values(layer(x).value())) {
    zeros += v == 0;
    REQUIRE((v == 0 || v == 4));
  }
  REQUIRE(std::abs(zeros - 2500) < 5 * 43);  // Standard deviation 43.
  REQUIRE(test::values(layer(x).value()) != test::values(layer(x).value()));
  layer.eval();
  REQUIRE(layer(x).value().same_view(x));
  CHECK_THROWS_WITH(nn::Dropout(1), ContainsSubstring("p must lie in [0, 1); got 1"));
}

TEST_CASE("pooling layers take the largest or the mean of their windows", "[nn][pooling]") {
  CHECK(test::values(nn::MaxPool2d(2)(ramp()).value()) == Values{6, 8, 14, 16});
  CHECK(test::values(nn::MaxPool2d(3, {.stride = 2, .padding = 1})(ramp()).value()) == Values{6, 8, 14, 16});
  CHECK(test::values(nn::AvgPool2d(2)(ramp()).value()) == Values{3.5, 5.5, 11.5, 13.5});
  CHECK(test::values(nn::AvgPool2d(2, {.stride = 1})(ramp()).value()).size() == 9);
  CHECK(test::values(nn::AvgPool2d(2, {.padding = 1})(ramp()).value()).front() == 0.25);  // Padding counts.
  CHECK(test::values(nn::AdaptiveAvgPool2d(1)(ramp()).value()) == Values{8.5});
  CHECK(test::values(nn::AdaptiveAvgPool2d(nn::Size2(1, 3))(ramp()).value()) == Values{7.5, 8.5, 9.5});
  CHECK_THROWS_WITH(nn::MaxPool2d(2, {.padding = 2}),
                    ContainsSubstring("padding must lie in [0, kernel / 2]"));
  CHECK_THROWS_WITH(nn::AvgPool2d(0), ContainsSubstring("kernel and stride must be positive"));
}

TEST_CASE("Flatten merges all dims but the first", "[nn][flatten]") {
  REQUIRE(nn::Flatten()(test::random({2, 3, 4, 5}, 1)).shape() == Shape{2, 60});
  // Channels-last memory must come out in logical order.
  const Tensor x = test::random({2, 3, 4, 5}, 1, DType::f32, MemoryFormat::channels_last);
  REQUIRE(test::values(nn::Flatten()(x).value()) == test::values(x));
}

TEST_CASE("Sequential applies its children in order and is the identity when empty", "[nn][sequential]") {
  nn::Sequential model;
  const Tensor x = of({-1, 2}, {1, 2});
  REQUIRE(model(x).value().same_view(x));
  auto& linear = model.emplace<nn::Linear>(2, 1);
  set(linear.weight, {1, -1});
  set(linear.bias, {0});
  REQUIRE(model(x).item() == -3);
  model.emplace<nn::ReLU>();
  REQUIRE(model(x).item() == 0);
  REQUIRE(model.size() == 2);
  REQUIRE(&model[0] == &linear);
  REQUIRE_THROWS_WITH(model.add("x", nullptr), ContainsSubstring("child \"x\" is null"));
}
