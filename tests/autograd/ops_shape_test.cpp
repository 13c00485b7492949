// SPDX-License-Identifier: MIT
// tests/autograd/ops_shape_test.cpp - derivatives of views, copies and casts.
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/shape_ops.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;

TEST_CASE("reshape, flatten, permute and transpose send every element back where it came from",
          "[autograd][shape]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  const std::vector<Variable> x = {leaf({2, 3, 2, 4}, 1, format)};
  REQUIRE(wrong_gradient([](const auto& in) { return reshape(in[0], {6, 8}); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return reshape(in[0], {4, -1}); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return flatten(in[0]); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return flatten(in[0], -2); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return permute(in[0], {3, 0, 2, 1}); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return permute(in[0], {-1, 0, 1, 2}); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return transpose(in[0], 1, -1); }, x) == "");
  REQUIRE(flatten(x[0]).shape() == Shape{2, 24});
  REQUIRE(flatten(x[0], 0).shape() == Shape{48});
  REQUIRE(permute(x[0], {3, 0, 2, 1}).shape() == Shape{4, 2, 2, 3});
}

TEST_CASE("flatten of an empty batch keeps its width", "[autograd][shape]") {
  REQUIRE(flatten(Variable(Tensor::empty({0, 3, 2, 2}))).shape() == Shape{0, 12});
}

TEST_CASE("slice and select give zero outside the part they picked", "[autograd][shape]") {
  const std::vector<Variable> x = {leaf({3, 5, 2}, 1)};
  REQUIRE(wrong_gradient([](const auto& in) { return slice(in[0], 1, 1, 4); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return slice(in[0], 1, 0, 5, 2); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return slice(in[0], -1, -1, 2); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return select(in[0], 0, 2); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return select(in[0], -2, -1); }, x) == "");

  const Variable line = leaf_of({1, 2, 3, 4, 5}, {5});
  const Variable picked = slice(line, 0, 1, 5, 2);
  REQUIRE(values(picked.value()) == std::vector<double>{2, 4});
  backward(sum(picked * 3.0));
  REQUIRE(values(line.grad()) == std::vector<double>{0, 3, 0, 3, 0});
}

TEST_CASE("overlapping parts of one tensor add their gradients", "[autograd][shape]") {
  const Variable x = leaf_of({1, 2, 3, 4}, {4});
  backward(sum(slice(x, 0, 0, 3) + slice(x, 0, 1, 4)));
  REQUIRE(values(x.grad()) == std::vector<double>{1, 2, 2, 1});
}

TEST_CASE("expand sums over its repetitions, and squeeze and unsqueeze are each other's derivative",
          "[autograd][shape]") {
  const std::vector<Variable> x = {leaf({3, 1, 2}, 1)};
  REQUIRE(wrong_gradient([](const auto& in) { return expand(in[0], {3, 4, 2}); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return expand(in[0], {2, 3, 1, 2}); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return squeeze(in[0], 1); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return squeeze(in[0], -2); }, x) == "");
  for (const std::int64_t dim : {0, 1, 3, -1, -4}) {
    CAPTURE(dim);
    REQUIRE(wrong_gradient([&](const auto& in) { return unsqueeze(in[0], dim); }, x) == "");
  }
  const Variable one = leaf_of({2}, {1});
  backward(sum(expand(one, {5})));
  REQUIRE(values(one.grad()) == std::vector<double>{5});
}

TEST_CASE("concat and stack give each input its own part", "[autograd][shape]") {
  const std::vector<Variable> parts = {leaf({2, 1, 3}, 1), leaf({2, 4, 3}, 2), leaf({2, 2, 3}, 3)};
  REQUIRE(wrong_gradient([](const auto& in) { return concat(in, 1); }, parts) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return concat(in, -2); }, parts) == "");
  const std::vector<Variable> equal = {leaf({2, 3}, 1), leaf({2, 3}, 2)};
  for (const std::int64_t dim : {0, 1, 2, -1}) {
    CAPTURE(dim);
    REQUIRE(wrong_gradient([&](const auto& in) { return stack(in, dim); }, equal) == "");
  }
  // The same tensor twice, and one input that needs no gradient.
  const Variable x = leaf_of({1, 2}, {2});
  const Variable frozen(Tensor::from<double>({7}, {1}));
  const Variable y = concat({x, frozen, x}, 0);
  REQUIRE(values(y.value()) == std::vector<double>{1, 2, 7, 1, 2});
  backward(y, {.gradient = Tensor::from<double>({1, 2, 3, 4, 5}, {5})});
  REQUIRE(values(x.grad()) == std::vector<double>{5, 7});
}

TEST_CASE("pad drops the gradient of its margin", "[autograd][shape]") {
  const std::vector<Variable> x = {leaf({2, 3}, 1)};
  REQUIRE(wrong_gradient([](const auto& in) { return pad(in[0], {1, 0}, {0, 2}, 9); }, x) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return pad(in[0], {0, 0}, {0, 0}); }, x) == "");
  const Variable line = leaf_of({1, 2}, {2});
  REQUIRE(values(pad(line, {1}, {2}, 9).value()) == std::vector<double>{9, 1, 2, 9, 9});
}

TEST_CASE("cast converts the gradient back", "[autograd][shape]") {
  const DType narrow = GENERATE(DType::f32, DType::bf16, DType::f16);
  const Variable x = leaf_of({1, -2, 0.5}, {3});
  const Variable y = cast(x, narrow);
  REQUIRE(y.dtype() == narrow);
  backward(y, {.gradient = ops::cast(Tensor::from<double>({2, 3, 4}, {3}), narrow)});
  REQUIRE(x.grad().dtype() == DType::f64);
  REQUIRE(values(x.grad()) == std::vector<double>{2, 3, 4});
  REQUIRE(cast(x, DType::f64) == x);
  REQUIRE_FALSE(cast(x, DType::i64).requires_grad());
}

TEST_CASE("contiguous changes the order in memory only, and gives the gradient in x's", "[autograd][shape]") {
  const Variable x = leaf({2, 3, 2, 2}, 1);
  REQUIRE(wrong_gradient([](const auto& in) { return contiguous(in[0], MemoryFormat::channels_last); },
                         {x}) == "");
  const Variable y = contiguous(x, MemoryFormat::channels_last);
  REQUIRE(y.value().is_contiguous(MemoryFormat::channels_last));
  REQUIRE(differs_bitwise(y.value(), x.value()) == "");
  const auto gradients = grad(sum(y * y), {x});
  REQUIRE(gradients[0].is_contiguous());
  REQUIRE(contiguous(x) == x);
}

TEST_CASE("shape functions name the shapes they cannot serve", "[autograd][shape][error]") {
  const Variable x = leaf({2, 3}, 1);
  REQUIRE_THROWS_WITH(reshape(x, {4, 2}), ContainsSubstring("[2, 3]") && ContainsSubstring("[4, 2]"));
  REQUIRE_THROWS_WITH(expand(x, {2, 4}), ContainsSubstring("[2, 3]") && ContainsSubstring("[2, 4]"));
  REQUIRE_THROWS_WITH(concat({x, leaf({3, 3}, 2)}, 1),
                      ContainsSubstring("[2, 3]") && ContainsSubstring("[3, 3]"));
  REQUIRE_THROWS_WITH(squeeze(x, 0), ContainsSubstring("squeeze") && ContainsSubstring("[2, 3]"));
}
