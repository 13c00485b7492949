// SPDX-License-Identifier: MIT
// tests/autograd/hooks_test.cpp - when hooks fire, and that they may be removed at any moment (case A04).
#include "autograd/hooks.h"

#include <string>

#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/reduce.h"
#include "kernels/ops.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {
Variable scalar(double value) { return Variable::parameter(ops::full({1}, value)); }
}  // namespace

TEST_CASE("a tensor hook fires for each contribution, the post-accumulate hook once with their sum",
          "[autograd][hooks]") {
  Variable x = scalar(1);
  std::vector<double> contributions, totals;
  x.register_hook([&](const Tensor& g) {
    contributions.push_back(g.item());
    return Tensor();
  });
  x.register_post_accumulate_hook([&](Variable& leaf) { totals.push_back(leaf.grad().item()); });
  const Variable y = x * 2.0 + x * 3.0;
  backward(y);
  std::sort(contributions.begin(), contributions.end());
  REQUIRE(contributions == std::vector<double>{2, 3});
  REQUIRE(totals == std::vector<double>{5});
}

TEST_CASE("a hook's result replaces the contribution", "[autograd][hooks]") {
  Variable x = scalar(1);
  x.register_hook([](const Tensor& g) { return ops::mul(g, 10.0); });
  backward(x * 2.0);
  REQUIRE(x.grad().item() == 20);
}

TEST_CASE("a hook on an intermediate result sees its gradient and may change it", "[autograd][hooks]") {
  Variable x = scalar(3);
  Variable h = x * x;
  double seen = 0;
  h.register_hook([&](const Tensor& g) {
    seen = g.item();
    return ops::mul(g, 0.5);
  });
  backward(h * 4.0);
  REQUIRE(seen == 4);
  REQUIRE(x.grad().item() == 12);
}

TEST_CASE("a hook that returns another shape is refused", "[autograd][hooks][error]") {
  Variable x = scalar(1);
  x.register_hook([](const Tensor&) { return ops::full({2}, 1.0); });
  REQUIRE_THROWS_WITH(backward(x * 2.0), ContainsSubstring("tensor hook") && ContainsSubstring("[2]"));
}

TEST_CASE("hooks may remove themselves and each other while they fire", "[autograd][hooks][A04]") {
  const int victim = GENERATE(0, 1, 2);
  Variable x = scalar(1);
  std::string log;
  HookHandle handles[3];
  for (int i = 0; i < 3; ++i)
    handles[i] = x.register_post_accumulate_hook([&, i](Variable&) {
      log += std::to_string(i);
      if (i == 1) handles[victim].remove();
    });
  backward(x * 2.0);
  backward(x * 2.0);
  // In the first round hook 2 is gone before its turn if it was the victim; in the
  // second the victim never fires.
  const std::string expected[] = {"01212", "01202", "0101"};
  REQUIRE(log == expected[victim]);
}

TEST_CASE("a hook added while hooks fire waits for the next backward", "[autograd][hooks][A04]") {
  Variable x = scalar(1);
  std::string log;
  x.register_post_accumulate_hook([&](Variable& leaf) {
    log += "a";
    if (log.size() == 1) leaf.register_post_accumulate_hook([&](Variable&) { log += "b"; });
  });
  backward(x * 2.0);
  REQUIRE(log == "a");
  backward(x * 2.0);
  REQUIRE(log == "aab");
}

TEST_CASE("removing a hook after its tensor is gone does nothing", "[autograd][hooks][A04]") {
  HookHandle handle;
  {
    Variable x = scalar(1);
    handle = x.register_post_accumulate_hook([](Variable&) {});
  }
  handle.remove();
  HookHandle().remove();
}

TEST_CASE("a hook may drop the last handle to the variable it hangs on", "[autograd][hooks][A04]") {
  Variable x = scalar(1);
  const Variable y = x * 2.0;
  x.register_post_accumulate_hook([&](Variable&) { x = Variable(); });
  backward(y);
  REQUIRE_FALSE(x.defined());
}

TEST_CASE("callbacks after backward run once, after all gradients", "[autograd][hooks]") {
  Variable a = scalar(1), b = scalar(1);
  bool both = false;
  a.register_post_accumulate_hook(
      [&](Variable&) { after_backward([&] { both = a.grad().defined() && b.grad().defined(); }); });
  backward(a * 2.0 + b * 3.0);
  REQUIRE(both);
  both = false;
  a.zero_grad();
  backward(b * 3.0);
  REQUIRE_FALSE(both);
  REQUIRE_THROWS_WITH(after_backward([] {}), ContainsSubstring("no backward is running"));
}
