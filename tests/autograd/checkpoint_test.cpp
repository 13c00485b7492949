// SPDX-License-Identifier: MIT
// tests/autograd/checkpoint_test.cpp - recomputation changes memory, never numbers or hooks (case A01).
#include "autograd/checkpoint.h"

#include "autograd/engine.h"
#include "autograd/no_grad.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "core/rng.h"
#include "kernels/ops.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

TEST_CASE("a checkpointed segment gives the same values and gradients, bit for bit",
          "[autograd][checkpoint]") {
  Variable x = Variable::parameter(test::random({4, 8}, 1));
  Variable w = Variable::parameter(test::random({8, 8}, 2)), b = Variable::parameter(test::random({8}, 3));
  const auto segment = [&](const Variable& in) { return dropout(tanh(linear(in, w, b)), 0.5); };
  const auto run = [&](bool recompute) {
    for (Variable* v : {&x, &w, &b}) v->zero_grad();
    default_generator() = {.seed = 5};
    const Variable h = recompute ? checkpoint(segment, x) : segment(x);
    // Drawing again between forward and backward must not disturb the recomputation.
    const Variable y = sum(dropout(h, 0.5));
    backward(y);
    return std::vector<Tensor>{y.value(), x.grad(), ops::clone(w.grad()), ops::clone(b.grad())};
  };
  const auto plain = run(false), recomputed = run(true);
  for (std::size_t i = 0; i < plain.size(); ++i)
    REQUIRE(test::differs_bitwise(recomputed[i], plain[i]) == "");
}

TEST_CASE("a parameter used in two checkpoints and outside fires its hook once",
          "[autograd][checkpoint][A01]") {
  Variable w = Variable::parameter(test::random({4, 4}, 1));
  int fired = 0;
  w.register_post_accumulate_hook([&](Variable&) { ++fired; });
  const auto layer = [&](const Variable& in) { return relu(linear(in, w, {})); };
  const Variable x(test::random({2, 4}, 2));
  backward(sum(linear(checkpoint(layer, checkpoint(layer, x)), w, {})));
  REQUIRE(fired == 1);
  const Tensor with = ops::clone(w.grad());
  w.zero_grad();
  backward(sum(linear(layer(layer(x)), w, {})));
  REQUIRE(test::differs(with, w.grad(), 1e-6, 1e-6) == "");
}

TEST_CASE("gradients flow to variables that the segment captured with their history",
          "[autograd][checkpoint]") {
  Variable a = Variable::parameter(ops::full({1}, 2.0));
  const Variable h = a * a;
  backward(checkpoint([&](const Variable& in) { return in * h * a; }, Variable(ops::full({1}, 3.0))));
  REQUIRE(a.grad().item() == 3 * 3 * 2 * 2);  // d(3 a³)/da = 9 a²
}

TEST_CASE("checkpoints nest", "[autograd][checkpoint]") {
  Variable a = Variable::parameter(ops::full({1}, 2.0));
  const auto square = [](const Variable& v) { return v * v; };
  const auto outer = [&](const Variable& v) { return checkpoint(square, checkpoint(square, v)) * a; };
  backward(checkpoint(outer, a));
  REQUIRE(a.grad().item() == 5 * 16);  // d(a⁵)/da
}

TEST_CASE("without gradients a checkpoint is a plain call, once", "[autograd][checkpoint]") {
  int calls = 0;
  const auto segment = [&](const Variable& v) {
    ++calls;
    REQUIRE_FALSE(is_recomputing());
    return v * 2.0;
  };
  const NoGrad scope;
  checkpoint(segment, Variable::parameter(ops::full({1}, 2.0)));
  REQUIRE(calls == 1);
}

TEST_CASE("a parameter that changed before backward is an error, as without checkpoint",
          "[autograd][checkpoint][error]") {
  Variable w = Variable::parameter(ops::full({1}, 2.0)), x = Variable::parameter(ops::full({1}, 3.0));
  const Variable y = checkpoint([&](const Variable& v) { return v * w; }, x);
  Tensor value = w.value();
  ops::mul_(value, 2.0);
  REQUIRE_THROWS_WITH(backward(y), ContainsSubstring("checkpoint") && ContainsSubstring("modified in place"));
}

TEST_CASE("recomputation leaves the thread's random numbers where they were", "[autograd][checkpoint]") {
  Variable x = Variable::parameter(test::random({4, 8}, 1));
  const Variable y = sum(checkpoint([](const Variable& v) { return dropout(v, 0.5); }, x));
  default_generator() = {.seed = 9, .next_stream = 40};
  backward(y);
  REQUIRE(default_generator() == Generator{.seed = 9, .next_stream = 40});
}
