// SPDX-License-Identifier: MIT
// tests/autograd/ops_reduce_test.cpp - derivatives of sums, means and maxima.
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/reduce.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;
using ops::KeepDims;

TEST_CASE("sum and mean have the derivative of their formula over any dims", "[autograd][reduce]") {
  const KeepDims keep = GENERATE(KeepDims::no, KeepDims::yes);
  const Variable x = leaf({2, 3, 4}, 1);
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{1}, Dims{-1}, Dims{0, 2}, Dims{2, 1}, Dims{0, 1, 2}}) {
    INFO(str("over ", dims));
    REQUIRE(wrong_gradient([&](const auto& in) { return sum(in[0], dims, keep); }, {x}) == "");
    REQUIRE(wrong_gradient([&](const auto& in) { return mean(in[0], dims, keep); }, {x}) == "");
  }
  // The stretched gradient (strides of 0) must also serve the operation before.
  REQUIRE(wrong_gradient([&](const auto& in) { return sum(in[0] * in[0], {1}, keep); }, {x}) == "");
}

TEST_CASE("max has the derivative of its formula over any dim", "[autograd][reduce]") {
  const KeepDims keep = GENERATE(KeepDims::no, KeepDims::yes);
  for (const std::int64_t dim : {0, 1, 2, -1, -3}) {
    CAPTURE(dim);
    REQUIRE(wrong_gradient([&](const auto& in) { return max(in[0], dim, keep); }, {leaf({2, 3, 4}, 1)}) ==
            "");
  }
}

TEST_CASE("max gives the gradient to the first of equal maxima only", "[autograd][reduce]") {
  const Variable x = leaf_of({1, 5, 5, 2, 2, 0}, {2, 3});
  const Variable y = max(x, 1);
  REQUIRE(values(y.value()) == std::vector<double>{5, 2});
  backward(y, {.gradient = Tensor::from<double>({10, 20}, {2})});
  REQUIRE(values(x.grad()) == std::vector<double>{0, 10, 0, 20, 0, 0});
}

TEST_CASE("sum and mean have the values and shapes of their formula", "[autograd][reduce]") {
  const Variable x = leaf_of({1, 2, 3, 4, 5, 6}, {2, 3});
  REQUIRE(sum(x).item() == 21);
  REQUIRE(mean(x).item() == 3.5);
  REQUIRE(values(sum(x, {0}).value()) == std::vector<double>{5, 7, 9});
  REQUIRE(values(mean(x, {-1}).value()) == std::vector<double>{2, 5});
  REQUIRE(sum(x, {1}, KeepDims::yes).shape() == Shape{2, 1});
  REQUIRE(sum(x).shape() == Shape());
}

TEST_CASE("reductions refuse a dim the tensor does not have", "[autograd][reduce][error]") {
  const Variable x = leaf({2, 3}, 1);
  REQUIRE_THROWS_WITH(sum(x, {2}), ContainsSubstring("sum") && ContainsSubstring("2"));
  REQUIRE_THROWS_WITH(max(x, -3), ContainsSubstring("max") && ContainsSubstring("-3"));
}
