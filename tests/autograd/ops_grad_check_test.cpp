// SPDX-License-Identifier: MIT
// tests/autograd/ops_grad_check_test.cpp - the checker is checked: it must catch wrong
// derivatives, and leave no trace.
#include <limits>

#include "autograd/node.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/shape_ops.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;

namespace {

// y = x² with the derivative `slope` · x.
Variable square_with_slope(const Variable& x, double slope) {
  return record("square", ops::mul(x.value(), x.value()), {x},
                [x_kept = SavedTensor(x.value()), slope](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::mul(ops::mul(dy, out.load(x_kept)), slope));
                });
}

}  // namespace

TEST_CASE("grad_check accepts a right derivative and rejects one that is off by a thousandth",
          "[autograd][grad_check]") {
  const Variable x = leaf({2, 3}, 1);
  const auto check = [&](double slope) {
    return grad_check([&](const auto& in) { return square_with_slope(in[0], slope); }, {x});
  };
  REQUIRE(check(2.0).passed);
  REQUIRE(check(2.0).worst_error < 1e-6);
  REQUIRE_FALSE(check(2.002).passed);
}

TEST_CASE("grad_check names the element that differs most, with both numbers", "[autograd][grad_check]") {
  // Only element 1 depends on x in a way the closure does not know.
  const Variable x = leaf_of({0, 3, 0}, {3});
  const auto result = grad_check([](const auto& in) { return square_with_slope(in[0], 0.0); }, {x});
  REQUIRE_FALSE(result.passed);
  REQUIRE_THAT(result.message, ContainsSubstring("input 0 [3], element 1") &&
                                   ContainsSubstring("derivative 0") && ContainsSubstring("difference"));
}

TEST_CASE("grad_check rejects a derivative that is not a number", "[autograd][grad_check]") {
  const Variable x = leaf({2}, 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  REQUIRE_FALSE(grad_check([&](const auto& in) { return square_with_slope(in[0], nan); }, {x}).passed);
}

TEST_CASE("grad_check finds a gradient that is missing for one of two inputs", "[autograd][grad_check]") {
  const auto forgets_second = [](const std::vector<Variable>& in) { return in[0] * in[1].detach(); };
  const auto result = grad_check(forgets_second, {leaf({3}, 1), leaf({3}, 2)});
  REQUIRE_FALSE(result.passed);
  REQUIRE_THAT(result.message, ContainsSubstring("input 1"));
}

TEST_CASE("grad_check restores the values, bit by bit, and leaves no gradient behind",
          "[autograd][grad_check]") {
  // Strided, so that the element under test is found through strides.
  const Tensor value = random({4, 3}, 3, DType::f64).transpose(0, 1);
  const Tensor before = ops::clone(value);
  const Variable x = Variable::parameter(value);
  const std::uint64_t version = value.version();
  REQUIRE(wrong_gradient([](const auto& in) { return in[0] * in[0] * in[0]; }, {x}) == "");
  REQUIRE(differs_bitwise(value, before) == "");
  REQUIRE_FALSE(x.grad().defined());
  REQUIRE(value.version() > version);
}

TEST_CASE("grad_check refuses inputs and results that are not f64", "[autograd][grad_check][error]") {
  const Variable narrow = Variable::parameter(random({2}, 1));
  REQUIRE_THROWS_WITH(grad_check([](const auto& in) { return in[0]; }, {narrow}),
                      ContainsSubstring("f64 leaves") && ContainsSubstring("input 0: f32 [2]"));
  const auto narrows = [](const std::vector<Variable>& in) { return cast(in[0], DType::f32); };
  REQUIRE_THROWS_WITH(grad_check(narrows, {leaf({2}, 1)}), ContainsSubstring("must return f64; got f32 [2]"));
  const Variable result = leaf({2}, 1) * 2.0;
  REQUIRE_THROWS_WITH(grad_check([](const auto& in) { return in[0]; }, {result}),
                      ContainsSubstring("result of an operation"));
}
