// SPDX-License-Identifier: MIT
// tests/autograd/ops_arithmetic_test.cpp - derivatives of broadcasting arithmetic, and in-place modification.
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/reduce.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;

namespace {

// Equal shapes, and stretching of either side, of both, in front and inside.
const std::vector<std::pair<Shape, Shape>> kBroadcasts = {
    {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{3}, {2, 3}}, {{2, 1}, {1, 3}}, {Shape(), {2, 3}}, {{4, 1, 2}, {3, 1}}};

}  // namespace

TEST_CASE("arithmetic has the derivative of its formula under any broadcasting", "[autograd][arithmetic]") {
  for (const auto& [a_shape, b_shape] : kBroadcasts) {
    INFO(str("a ", a_shape, " and b ", b_shape));
    const std::vector<Variable> inputs = {leaf(a_shape, 1), positive_leaf(b_shape, 2)};
    REQUIRE(wrong_gradient([](const auto& in) { return in[0] + in[1]; }, inputs) == "");
    REQUIRE(wrong_gradient([](const auto& in) { return in[0] - in[1]; }, inputs) == "");
    REQUIRE(wrong_gradient([](const auto& in) { return in[0] * in[1]; }, inputs) == "");
    REQUIRE(wrong_gradient([](const auto& in) { return in[0] / in[1]; }, inputs) == "");
  }
}

TEST_CASE("where sends the gradient to the operand it chose", "[autograd][arithmetic]") {
  for (const auto& [a_shape, b_shape] : kBroadcasts) {
    INFO(str("a ", a_shape, " and b ", b_shape));
    const Shape shape = broadcast_shapes("test", a_shape, b_shape);
    const Tensor condition = ops::binary(Binary::gt, random(shape, 3), 0.0);
    REQUIRE(wrong_gradient([&](const auto& in) { return where(condition, in[0], in[1]); },
                           {leaf(a_shape, 1), leaf(b_shape, 2)}) == "");
  }
  const Variable a = leaf_of({1, 2}, {2}), b = leaf_of({3, 4}, {2});
  const Tensor first = ops::binary(Binary::lt, Tensor::from<float>({0, 1}, {2}), 0.5);
  const Variable y = where(first, a, b);
  REQUIRE(values(y.value()) == std::vector<double>{1, 4});
  backward(sum(y));
  REQUIRE(values(a.grad()) == std::vector<double>{1, 0});
  REQUIRE(values(b.grad()) == std::vector<double>{0, 1});
}

TEST_CASE("arithmetic with constants has the derivative of its formula", "[autograd][arithmetic]") {
  const std::vector<Variable> inputs = {leaf({2, 3}, 1)};
  REQUIRE(wrong_gradient([](const auto& in) { return in[0] + 2.5; }, inputs) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return in[0] - 2.5; }, inputs) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return in[0] * -3.0; }, inputs) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return 0.5 * in[0]; }, inputs) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return in[0] / 4.0; }, inputs) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return -in[0]; }, inputs) == "");
}

TEST_CASE("pow has the derivative of its formula, for fractions and negative exponents too",
          "[autograd][arithmetic]") {
  const std::vector<Variable> inputs = {positive_leaf({2, 3}, 1)};
  for (const double exponent : {2.0, 3.0, 0.5, -1.0, -2.5, 1.0, 0.0}) {
    CAPTURE(exponent);
    REQUIRE(wrong_gradient([&](const auto& in) { return pow(in[0], exponent); }, inputs) == "");
  }
  const Variable zero = leaf_of({0, -2}, {2});
  backward(sum(pow(zero, 0)));
  REQUIRE(values(zero.grad()) == std::vector<double>{0, 0});
}

TEST_CASE("arithmetic has the values of its formula", "[autograd][arithmetic]") {
  const Variable a = leaf_of({6, 1}, {2}), b = leaf_of({2, 4}, {2});
  REQUIRE(values((a + b).value()) == std::vector<double>{8, 5});
  REQUIRE(values((a - b).value()) == std::vector<double>{4, -3});
  REQUIRE(values((a * b).value()) == std::vector<double>{12, 4});
  REQUIRE(values((a / b).value()) == std::vector<double>{3, 0.25});
  REQUIRE(values((a - 1.0).value()) == std::vector<double>{5, 0});
  REQUIRE(values((-a).value()) == std::vector<double>{-6, -1});
  REQUIRE(values(pow(b, 2).value()) == std::vector<double>{4, 16});
}

TEST_CASE("an input used twice receives the sum of both uses", "[autograd][arithmetic]") {
  const Variable x = leaf_of({3, -2}, {2});
  backward(sum(x * x));
  REQUIRE(values(x.grad()) == std::vector<double>{6, -4});

  const std::vector<Variable> inputs = {positive_leaf({2, 3}, 1)};
  REQUIRE(wrong_gradient([](const auto& in) { return in[0] * in[0] + in[0] / (in[0] + 1.0); }, inputs) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return in[0] - in[0]; }, inputs) == "");
}

TEST_CASE("backward refuses a saved tensor that was modified in place and names the operation",
          "[autograd][arithmetic][error]") {
  const Variable x = leaf_of({3, -2}, {2});
  const Variable y = x * x;
  Tensor memory = x.value();
  ops::add_(memory, Tensor::from<double>({1, 1}, {2}));
  REQUIRE_THROWS_WITH(backward(sum(y)), ContainsSubstring("mul") && ContainsSubstring("modified in place") &&
                                            ContainsSubstring("f64 [2]"));
}

TEST_CASE("a tensor that backward does not read may be modified in place", "[autograd][arithmetic]") {
  const Variable x = leaf_of({3, -2}, {2});
  const Variable scale(Tensor::from<double>({10, 20}, {2}));  // Needs no gradient, so x is not kept.
  const Variable y = x * scale;
  Tensor memory = x.value();
  ops::fill_(memory, 0);
  backward(sum(y));
  REQUIRE(values(x.grad()) == std::vector<double>{10, 20});
}

TEST_CASE("an operand that no gradient is computed from is not kept alive", "[autograd][arithmetic]") {
  const Variable scale(Tensor::from<double>({10, 20}, {2})), parameter = leaf_of({10, 20}, {2});
  const auto kept_by_product_with = [](const Variable& other) {
    Variable x = leaf({2}, 1) * 2.0;
    const Variable y = x * other;
    const Tensor memory = x.value();
    x = Variable();
    return !memory.storage().unique();
  };
  REQUIRE_FALSE(kept_by_product_with(scale));
  REQUIRE(kept_by_product_with(parameter));
}

TEST_CASE("arithmetic names both shapes when they do not broadcast", "[autograd][arithmetic][error]") {
  const Variable a = leaf({2, 3}, 1), b = leaf({2}, 2);
  for (const auto function : {+[](const Variable&p, const Variable&q) { return p + q; },
                              +[](const Variable&p, const Variable&q) { return p - q; },
                              +[](const Variable&p, const Variable&q) { return p * q; },
                              +[](const Variable&p, const Variable&q) { return p / q; }})
    REQUIRE_THROWS_WITH(function(a, b), ContainsSubstring("[2, 3]") && ContainsSubstring("[2]"));
}
