// SPDX-License-Identifier: MIT
// tests/autograd/take_sum_test.cpp - an operation that adds its contribution to a gradient by itself, and when it must
// not. How convolution uses it: ops_conv_test.cpp.
#include <vector>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/ops/arithmetic.h"
#include "kernels/ops.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

Variable leaf(double value) { return Variable::parameter(ops::full({1}, value)); }

// y = x, whose backward adds to what x has got so far where the engine lets it.
Variable adding(const Variable& x, bool& added) {
  return record("adding", ops::clone(x.value()), {x}, [&added](const Tensor& dy, Gradients& out) {
    Tensor sum = out.take_sum(0);
    added = sum.defined();
    if (added) ops::add_(sum, dy);
    out.give(0, added ? sum : dy);
  });
}

// y = 2 x, whose backward keeps a handle to the gradient it gives in `kept`, if there is one.
Variable doubled(const Variable& x, Tensor* kept = nullptr) {
  return record("doubled", ops::mul(x.value(), 2.0), {x}, [kept](const Tensor& dy, Gradients& out) {
    const Tensor gradient = ops::mul(dy, 2.0);
    if (kept != nullptr) *kept = gradient;
    out.give(0, gradient);
  });
}

}  // namespace

TEST_CASE("an operation may add to what its input's gradient is so far", "[autograd][engine]") {
  Variable x = leaf(1);
  bool added = false;
  const Variable h = x * 10.0;
  SECTION("on the way to a leaf") {
    const Variable first = adding(h, added), second = doubled(h), y = first + second;
    for (int round = 1; round <= 2; ++round) {  // A retained graph is no different the second time.
      backward(y, {.retain_graph = true});
      REQUIRE(added);
      REQUIRE(x.grad().item() == 30 * round);
    }
  }
  SECTION("between others") {
    const Variable first = h * 4.0, second = adding(h, added), third = doubled(h);
    backward(first + second + third);
    REQUIRE(added);
    REQUIRE(x.grad().item() == 70);
  }
  SECTION("of an intermediate result that grad is asked for") {
    const Variable first = adding(h, added), second = doubled(h);
    REQUIRE(grad(first + second, {h})[0].item() == 3);
    REQUIRE(added);
  }
  SECTION("of a leaf that grad is asked for") {
    const Variable first = adding(x, added), second = doubled(x);
    REQUIRE(grad(first + second, {x})[0].item() == 3);
    REQUIRE(added);
  }
}

TEST_CASE("an operation gets no sum to add to where the contributions are needed apart",
          "[autograd][engine][hooks]") {
  Variable x = leaf(1), h = x * 10.0;
  bool added = true;
  SECTION("by a hook") {
    std::vector<double> contributions;
    h.register_hook([&](const Tensor& g) {
      contributions.push_back(g.item());
      return ops::mul(g, 5.0);
    });
    const Variable first = adding(h, added), second = doubled(h);
    backward(first + second);
    REQUIRE(contributions == std::vector<double>{2, 1});
    REQUIRE(x.grad().item() == 150);
  }
  SECTION("by whoever holds an earlier one") {
    Tensor kept;
    const Variable first = adding(h, added), second = doubled(h, &kept);
    backward(first + second);
    REQUIRE(kept.item() == 2);
    REQUIRE(x.grad().item() == 30);
  }
  SECTION("by another operand that got the same tensor") {
    const Variable other = x * 1.0, first = adding(h, added), second = h + other;
    backward(first + second);
    REQUIRE(x.grad().item() == 21);
  }
  SECTION("by a leaf, whose gradient outlives this backward") {
    const Variable first = adding(x, added), second = doubled(x);
    backward(first + second);
    REQUIRE(x.grad().item() == 3);
  }
  SECTION("because there is none yet") {
    backward(adding(h, added));
    REQUIRE(x.grad().item() == 10);
  }
  REQUIRE_FALSE(added);
}
