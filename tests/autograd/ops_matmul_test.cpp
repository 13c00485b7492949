// SPDX-License-Identifier: MIT
// tests/autograd/ops_matmul_test.cpp - derivatives of matrix products.
#include "autograd/ops/matmul.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/shape_ops.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;

TEST_CASE("matmul has the derivative of its formula under any broadcasting of batch dims",
          "[autograd][matmul]") {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 3}, {3, 4}},    {{1, 1}, {1, 1}},          {{2, 2, 3}, {2, 3, 2}}, {{2, 2, 3}, {3, 2}},
      {{2, 3}, {4, 3, 2}}, {{2, 1, 2, 3}, {3, 3, 2}}, {{1, 2, 3}, {5, 3, 1}}};
  for (const auto& [a, b] : shapes) {
    INFO(str("a ", a, " and b ", b));
    REQUIRE(wrong_gradient([](const auto& in) { return matmul(in[0], in[1]); }, {leaf(a, 1), leaf(b, 2)}) ==
            "");
  }
}

TEST_CASE("matmul takes transposed views and the same matrix twice", "[autograd][matmul]") {
  REQUIRE(wrong_gradient([](const auto& in) { return matmul(in[0], transpose(in[0], 0, 1)); },
                         {leaf({2, 3}, 1)}) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return matmul(in[0], in[0]); }, {leaf({3, 3}, 1)}) == "");
}

TEST_CASE("matmul has the values of its formula", "[autograd][matmul]") {
  const Variable a = leaf_of({1, 2, 3, 4}, {2, 2}), b = leaf_of({5, 6, 7, 8}, {2, 2});
  const Variable y = matmul(a, b);
  REQUIRE(values(y.value()) == std::vector<double>{19, 22, 43, 50});
  backward(sum(y));
  REQUIRE(values(a.grad()) == std::vector<double>{11, 15, 11, 15});
  REQUIRE(values(b.grad()) == std::vector<double>{4, 4, 6, 6});
}

TEST_CASE("linear has the derivative of its formula for any number of leading dims, with and without bias",
          "[autograd][linear]") {
  for (const Shape& x : {Shape{4, 3}, Shape{1, 3}, Shape{3}, Shape{2, 2, 3}, Shape{2, 1, 2, 3}}) {
    INFO(str("x ", x));
    const std::vector<Variable> inputs = {leaf(x, 1), leaf({5, 3}, 2), leaf({5}, 3)};
    REQUIRE(wrong_gradient([](const auto& in) { return linear(in[0], in[1], in[2]); }, inputs) == "");
    REQUIRE(wrong_gradient([](const auto& in) { return linear(in[0], in[1], Variable()); },
                           {inputs[0], inputs[1]}) == "");
  }
}

TEST_CASE("a ReLU in a linear layer's pass has the derivative of its formula", "[autograd][linear]") {
  for (const Shape& x : {Shape{4, 3}, Shape{3}, Shape{2, 1, 2, 3}}) {
    INFO(str("x ", x));
    const std::vector<Variable> inputs = {leaf(x, 1), leaf({5, 3}, 2), leaf({5}, 3)};
    const auto function = [](const auto& in) { return relu(linear_before_relu(in[0], in[1], in[2])); };
    REQUIRE(wrong_gradient(function, inputs) == "");
    const auto unbiased = [](const auto& in) { return relu(linear_before_relu(in[0], in[1], Variable())); };
    REQUIRE(wrong_gradient(unbiased, {inputs[0], inputs[1]}) == "");
  }
}

TEST_CASE("a ReLU in a linear layer's pass has the bits of the two operations, forward and backward",
          "[autograd][linear]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Variable x = Variable::parameter(random({7, 20}, 1, dtype));
    const Variable w = Variable::parameter(random({9, 20}, 2)), b = Variable::parameter(random({9}, 3));
    const Variable apart = relu(linear(x, w, b)), fused = relu(linear_before_relu(x, w, b));
    REQUIRE(differs_bitwise(fused.value(), apart.value()) == "");
    const std::vector<Tensor> expected = grad(sum(apart), {x, w, b}), got = grad(sum(fused), {x, w, b});
    for (std::size_t i = 0; i < 3; ++i) CHECK(differs_bitwise(got[i], expected[i]) == "");
  }
}

TEST_CASE("linear takes a strided input and a stretched gradient", "[autograd][linear]") {
  const std::vector<Variable> inputs = {leaf({3, 2, 4}, 1), leaf({5, 3}, 2), leaf({5}, 3)};
  const auto function = [](const std::vector<Variable>& in) {
    return sum(linear(permute(in[0], {2, 1, 0}), in[1], in[2]), {0});
  };
  REQUIRE(wrong_gradient(function, inputs) == "");
}

TEST_CASE("linear has the values of its formula", "[autograd][linear]") {
  const Variable x = leaf_of({1, 2}, {1, 2}), w = leaf_of({1, 0, 0, 1, 2, 3}, {3, 2}),
                 b = leaf_of({10, 20, 30}, {3});
  const Variable y = linear(x, w, b);
  REQUIRE(values(y.value()) == std::vector<double>{11, 22, 38});
  backward(y, {.gradient = Tensor::from<double>({1, 2, 3}, {1, 3})});
  REQUIRE(values(x.grad()) == std::vector<double>{7, 11});
  REQUIRE(values(w.grad()) == std::vector<double>{1, 2, 2, 4, 3, 6});
  REQUIRE(values(b.grad()) == std::vector<double>{1, 2, 3});
}

TEST_CASE("linear writes parameter gradients into the memory bound to the parameters", "[autograd][linear]") {
  Variable w = leaf({4, 3}, 1), b = leaf({4}, 2);
  const Variable x(random({2, 3}, 3, DType::f64));
  const Tensor flat = ops::full({16}, 99.0, DType::f64);
  w.bind_grad(flat.slice(0, 0, 12).view({4, 3}));
  b.bind_grad(flat.slice(0, 12, 16));
  backward(sum(linear(x, w, b)));
  const Tensor rows = ops::reduce(Reduction::sum, x.value(), {0}).expand({4, 3});
  REQUIRE(differs(flat.slice(0, 0, 12).view({4, 3}), rows, 1e-12) == "");
  REQUIRE(values(flat.slice(0, 12, 16)) == std::vector<double>{2, 2, 2, 2});
}

TEST_CASE("a weight used by two layers collects both gradients in its bound memory", "[autograd][linear]") {
  Variable w = leaf({3, 3}, 1);
  const Variable x(random({2, 3}, 2, DType::f64));
  const auto twice = [&] { return sum(linear(linear(x, w, Variable()), w, Variable())); };
  const Tensor expected = grad(twice(), {w})[0];
  const Tensor memory = ops::full({3, 3}, 99.0, DType::f64);
  w.bind_grad(memory);
  backward(twice());
  REQUIRE(differs(memory, expected, 1e-12) == "");
}

TEST_CASE("linear names both shapes when the inner sizes differ", "[autograd][linear][error]") {
  REQUIRE_THROWS_WITH(
      linear(leaf({32, 512}, 1), leaf({10, 256}, 2), leaf({10}, 3)),
      ContainsSubstring("linear") && ContainsSubstring("[32, 512]") && ContainsSubstring("[10, 256]"));
  REQUIRE_THROWS_WITH(linear(leaf({32, 512}, 1), leaf({10, 512}, 2), leaf({9}, 3)),
                      ContainsSubstring("linear") && ContainsSubstring("[9]"));
}

TEST_CASE("matmul names both shapes when the inner sizes differ", "[autograd][matmul][error]") {
  REQUIRE_THROWS_WITH(matmul(leaf({2, 3}, 1), leaf({4, 5}, 2)), ContainsSubstring("matmul") &&
                                                                    ContainsSubstring("[2, 3]") &&
                                                                    ContainsSubstring("[4, 5]"));
}
