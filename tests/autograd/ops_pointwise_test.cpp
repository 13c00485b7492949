// SPDX-License-Identifier: MIT
// tests/autograd/ops_pointwise_test.cpp - derivatives of functions of one variable, and dropout.
#include <cmath>

#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;
using Catch::Matchers::WithinAbs;

namespace {

struct Case {
  const char* name;
  Variable (*function)(const Variable&);
  double (*value)(double);
};

const std::vector<Case> kAnywhere = {
    {"exp", exp, [](double x) { return std::exp(x); }},
    {"abs", abs, [](double x) { return std::abs(x); }},
    {"tanh", tanh, [](double x) { return std::tanh(x); }},
    {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"relu", relu, [](double x) { return std::max(x, 0.0); }},
    {"gelu", gelu, [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }},
};
const std::vector<Case> kPositive = {
    {"log", log, [](double x) { return std::log(x); }},
    {"sqrt", sqrt, [](double x) { return std::sqrt(x); }},
};

void check(const Case& c, const Variable& x) {
  INFO(str(c.name, " of ", x.shape()));
  REQUIRE(wrong_gradient([&](const auto& in) { return c.function(in[0]); }, {x}) == "");
  const std::vector<double> in = values(x.value()), out = values(c.function(x).value());
  for (std::size_t i = 0; i < in.size(); ++i) REQUIRE_THAT(out[i], WithinAbs(c.value(in[i]), 1e-12));
}

}  // namespace

TEST_CASE("functions of one variable have the value and the derivative of their formula",
          "[autograd][pointwise]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{2, 3, 2, 2}}) {
    const MemoryFormat f = shape.size() == 4 ? format : MemoryFormat::contiguous;
    for (const Case& c : kAnywhere) check(c, leaf(shape, 1, f));
    for (const Case& c : kPositive) check(c, positive_leaf(shape, 2));
  }
}

TEST_CASE("relu and abs have gradient 0 at 0", "[autograd][pointwise]") {
  const Variable x = leaf_of({-2, 0, 3}, {3});
  backward(sum(relu(x)));
  REQUIRE(values(x.grad()) == std::vector<double>{0, 0, 1});
  const Variable z = leaf_of({-2, 0, 3}, {3});
  backward(sum(abs(z)));
  REQUIRE(values(z.grad()) == std::vector<double>{-1, 0, 1});
}

TEST_CASE("backward through a result modified in place names the function", "[autograd][pointwise][error]") {
  const Variable x = leaf({3}, 1);
  const Variable y = tanh(x);
  Tensor memory = y.value();
  ops::mul_(memory, 2.0);
  REQUIRE_THROWS_WITH(backward(sum(y)), ContainsSubstring("tanh") && ContainsSubstring("modified in place"));
}

TEST_CASE("dropout keeps 1 - p of the elements and the mean", "[autograd][dropout]") {
  default_generator() = {.seed = 5};
  const std::int64_t n = 100000;
  const Variable x(ops::full({n}, 1.0));
  for (const double p : {0.1, 0.5, 0.9}) {
    CAPTURE(p);
    double kept = 0, total = 0;
    for (const double y : values(dropout(x, p).value())) {
      if (y != 0) {
        ++kept;
        REQUIRE_THAT(y, WithinAbs(1 / (1 - p), 1e-5));
      }
      total += y;
    }
    // Five standard deviations of the kept share; the mean is the share divided by 1 - p.
    const double bound = 5 * std::sqrt(p * (1 - p) / static_cast<double>(n));
    REQUIRE_THAT(kept / static_cast<double>(n), WithinAbs(1 - p, bound));
    REQUIRE_THAT(total / static_cast<double>(n), WithinAbs(1, bound / (1 - p)));
  }
}

TEST_CASE("dropout drops the same elements in backward as in forward", "[autograd][dropout]") {
  default_generator() = {.seed = 6};
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  const Variable x = Variable::parameter(ops::clone(ops::full({2, 8, 3, 3}, 1.0, DType::f64), format));
  const Variable y = dropout(x, 0.4);
  (void)dropout(x, 0.4);  // Numbers drawn in between must not matter.
  // A gradient of ones comes back as the mask with its scale, and x = 1 makes y the same.
  backward(sum(y));
  REQUIRE(differs(x.grad(), y.value(), 1e-15) == "");
}

TEST_CASE("dropout draws new elements at every call and is a function of the generator's state",
          "[autograd][dropout]") {
  const Variable x(ops::full({64}, 1.0));
  default_generator() = {.seed = 7};
  const Tensor first = dropout(x, 0.5).value(), second = dropout(x, 0.5).value();
  default_generator() = {.seed = 7};
  const Tensor again = dropout(x, 0.5).value();
  REQUIRE(differs_bitwise(first, second) != "");
  REQUIRE(differs_bitwise(first, again) == "");
}

TEST_CASE("dropout has the derivative of its mask", "[autograd][dropout]") {
  const auto function = [](const std::vector<Variable>& in) {
    default_generator() = {.seed = 8};  // The same elements at every evaluation.
    return dropout(in[0], 0.3);
  };
  REQUIRE(wrong_gradient(function, {leaf({3, 5}, 1)}) == "");
}

TEST_CASE("dropout with p = 0 is the identity, and p below 0 or from 1 on is refused",
          "[autograd][dropout][error]") {
  const Variable x = leaf({4}, 1);
  REQUIRE(dropout(x, 0) == x);
  REQUIRE_THROWS_WITH(dropout(x, 1.0), ContainsSubstring("dropout") && ContainsSubstring("got p 1"));
  REQUIRE_THROWS_WITH(dropout(x, -0.1), ContainsSubstring("got p -0.1"));
}
