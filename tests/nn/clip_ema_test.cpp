// SPDX-License-Identifier: MIT
// tests/nn/clip_ema_test.cpp - the global gradient norm, and the average of parameters.
#include <limits>

#include "autograd/engine.h"
#include "kernels/ops.h"
#include "nn/optim/clip.h"
#include "nn/optim/ema.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using Catch::Matchers::WithinRel;
using optim::FlatParameters;

namespace {

std::vector<nn::NamedParameter> make_parameters() {
  return {{"a", Variable::parameter(test::random({5, 3}, 1))},
          {"b", Variable::parameter(test::random({7}, 2))},
          {"unused", Variable::parameter(test::random({4}, 3))}};
}

void give(const nn::NamedParameter& parameter, const Tensor& gradient) {
  backward(parameter.variable, {.gradient = gradient});
}

}  // namespace

TEST_CASE("the gradient norm covers all present gradients, in any flat order to the bit", "[nn][clip]") {
  double first = 0;
  for (const std::vector<int>& order : {std::vector<int>{}, {0, 1, 2}, {1, 2, 0}}) {
    auto parameters = make_parameters();
    FlatParameters flat(parameters, order);
    const Tensor a = test::random({5, 3}, 11), b = test::random({7}, 12);
    give(parameters[0], a);
    give(parameters[1], b);
    const double norm = optim::grad_norm(flat);
    CHECK_THAT(norm, WithinRel(std::sqrt(ops::sum_of_squares(a) + ops::sum_of_squares(b)), 1e-12));
    if (first == 0) first = norm;
    CHECK(norm == first);
  }
}

TEST_CASE("clipping scales to the maximum and leaves smaller gradients alone", "[nn][clip]") {
  auto parameters = make_parameters();
  FlatParameters flat(parameters);
  give(parameters[0], ops::full({5, 3}, 1));
  give(parameters[1], ops::full({7}, 2));
  const double before = std::sqrt(15 + 28.0);
  REQUIRE_THAT(optim::clip_grad_norm(flat, 2 * before), WithinRel(before, 1e-12));
  REQUIRE(test::values(parameters[1].variable.grad()) == std::vector<double>(7, 2));

  REQUIRE_THAT(optim::clip_grad_norm(flat, 1), WithinRel(before, 1e-12));
  REQUIRE_THAT(optim::grad_norm(flat), WithinRel(1, 1e-6));
  REQUIRE(test::differs(parameters[1].variable.grad(), ops::full({7}, 2 / before), 1e-6) == "");
  REQUIRE_FALSE(parameters[2].variable.grad().defined());
  REQUIRE_THROWS_WITH(optim::clip_grad_norm(flat, 0), ContainsSubstring("max_norm must be positive; got 0"));
}

TEST_CASE("a norm that is not finite is returned and changes nothing", "[nn][clip]") {
  auto parameters = make_parameters();
  FlatParameters flat(parameters);
  give(parameters[0], ops::full({5, 3}, 1));
  give(parameters[1], ops::full({7}, std::numeric_limits<double>::infinity()));
  REQUIRE(std::isinf(optim::clip_grad_norm(flat, 1)));
  REQUIRE(test::values(parameters[0].variable.grad()) == std::vector<double>(15, 1));
}

TEST_CASE("the average starts at the parameters and follows them", "[nn][ema]") {
  auto parameters = make_parameters();
  FlatParameters flat(parameters);
  Tensor b = parameters[1].variable.value();
  ops::fill_(b, 1);
  optim::Ema ema(flat, 0.75);
  const NamedTensors state = ema.state();
  REQUIRE(state.at(1).first == "b");
  REQUIRE(test::values(state[1].second) == std::vector<double>(7, 1));
  ops::fill_(b, 5);
  ema.update();
  REQUIRE(test::values(state[1].second) == std::vector<double>(7, 2));
  ema.update();
  REQUIRE(test::values(state[1].second) == std::vector<double>(7, 2.75));
}

TEST_CASE("swapping the average in and out restores parameters and average", "[nn][ema]") {
  auto parameters = make_parameters();
  FlatParameters flat(parameters);
  Tensor b = parameters[1].variable.value();
  ops::fill_(b, 1);
  optim::Ema ema(flat, 0.5);
  ops::fill_(b, 3);
  {
    const auto scope = ema.average_scope();
    REQUIRE(ema.swapped());
    REQUIRE(test::values(parameters[1].variable.value()) == std::vector<double>(7, 1));
    REQUIRE_THROWS_WITH(ema.update(), ContainsSubstring("swap() it out"));
  }
  REQUIRE_FALSE(ema.swapped());
  REQUIRE(test::values(parameters[1].variable.value()) == std::vector<double>(7, 3));
  REQUIRE(test::values(ema.state()[1].second) == std::vector<double>(7, 1));
  REQUIRE_THROWS_WITH(optim::Ema(flat, 1.5), ContainsSubstring("decay must lie in [0, 1]; got 1.5"));
}
