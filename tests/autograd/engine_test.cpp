// SPDX-License-Identifier: MIT
// tests/autograd/engine_test.cpp - order, accumulation, freeing and the named errors of the engine.
#include "autograd/engine.h"

#include <cmath>
#include <string>
#include <thread>

#include "autograd/no_grad.h"
#include "autograd/node.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "kernels/ops.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

Variable leaf(double value) { return Variable::parameter(ops::full({1}, value)); }

// y = x, noting in `log` when its backward runs.
Variable traced(const Variable& x, std::string& log, char mark) {
  return record("traced", ops::clone(x.value()), {x}, [&log, mark](const Tensor& dy, Gradients& out) {
    log += mark;
    out.give(0, dy);
  });
}

class Recorder : public BackwardObserver {
 public:
  void before_backward(const BackwardStart& start) override {
    reached_count = start.reached.size();
    unobserved_count = start.unobserved.size();
    last_label = start.label;
    log += "(";
  }
  void grad_ready(const Variable&) override { log += "r"; }
  void after_backward() override { log += ")"; }
  std::string log;
  std::size_t reached_count = 0, unobserved_count = 0;
  std::uint64_t last_label = 0;
};

}  // namespace

TEST_CASE("backward runs the latest recorded of the ready operations first", "[autograd][engine]") {
  std::string log;
  const Variable x = leaf(1);
  const Variable a = traced(x, log, 'a'), b = traced(x, log, 'b'), c = traced(a, log, 'c');
  backward(a + b + c);
  REQUIRE(log == "cba");
}

TEST_CASE("gradients of two backwards add up until zero_grad", "[autograd][engine]") {
  Variable x = leaf(2);
  backward(x * x);
  backward(x * 3.0);
  REQUIRE(x.grad().item() == 7);
  x.zero_grad();
  REQUIRE_FALSE(x.grad().defined());
  backward(x * 3.0);
  REQUIRE(x.grad().item() == 3);
}

TEST_CASE("gradients of different leaves never share memory", "[autograd][engine]") {
  Variable x = leaf(1), y = leaf(1);
  backward(x + y);
  Tensor gx = x.grad();
  ops::fill_(gx, 9);
  REQUIRE(y.grad().item() == 1);
}

TEST_CASE("a bound gradient is written in place: first use overwrites, later uses add",
          "[autograd][engine]") {
  Variable x = leaf(1);
  Tensor memory = ops::full({1}, 123.0);
  x.bind_grad(memory);
  backward(x * 2.0 + x * 3.0);
  REQUIRE(x.grad().same_view(memory));
  REQUIRE(memory.item() == 5);
  backward(x * 1.0);
  REQUIRE(memory.item() == 6);
  x.zero_grad();
  backward(x * 4.0);
  REQUIRE(memory.item() == 4);
  REQUIRE(x.grad().same_view(memory));
}

TEST_CASE("a closure's destination is the bound memory once, and fresh memory afterwards",
          "[autograd][engine]") {
  Variable x = leaf(1);
  Tensor memory = ops::full({1}, 0.0);
  x.bind_grad(memory);
  std::vector<bool> direct;
  const auto writer = [&](const Variable& input) {
    return record("writer", ops::clone(input.value()), {input}, [&](const Tensor& dy, Gradients& out) {
      Tensor to = out.destination(0);
      direct.push_back(to.same_view(memory));
      ops::copy_(to, dy);
      out.give(0, to);
    });
  };
  backward(writer(x) + writer(x));
  REQUIRE(direct == std::vector<bool>{true, false});
  REQUIRE(memory.item() == 2);
}

TEST_CASE("a graph goes backward once unless it is retained", "[autograd][engine][error]") {
  Variable x = leaf(2);
  const Variable y = exp(x);
  backward(y, {.retain_graph = true});
  backward(y);
  REQUIRE_THROWS_WITH(backward(y),
                      ContainsSubstring("graph behind exp was freed") && ContainsSubstring("retain_graph"));
  const Variable z = x * y;  // Reaches the freed graph from a new operation.
  REQUIRE_THROWS_WITH(backward(z), ContainsSubstring("freed"));
}

TEST_CASE("a saved tensor that was changed in place is an error that names the operation",
          "[autograd][engine][error][A05]") {
  Variable x = leaf(2);
  const Variable y = x * x;
  Tensor value = x.value();
  ops::binary_(Binary::add, value, 1.0);
  REQUIRE_THROWS_WITH(backward(y), ContainsSubstring("mul") && ContainsSubstring("modified in place"));
}

TEST_CASE("backward needs a graph and a gradient that fits", "[autograd][engine][error]") {
  REQUIRE_THROWS_WITH(backward(Variable(ops::full({1}, 1.0))), ContainsSubstring("requires no gradient"));
  Variable x = Variable::parameter(ops::full({2}, 1.0));
  REQUIRE_THROWS_WITH(backward(x * 2.0), ContainsSubstring("[2]"));
  REQUIRE_THROWS_WITH(backward(x * 2.0, {.gradient = ops::full({3}, 1.0)}), ContainsSubstring("[3]"));
}

TEST_CASE("a closure that gives a gradient of another shape, or none, is named",
          "[autograd][engine][error]") {
  const Variable x = leaf(1);
  const Variable wrong = record("wrong", x.value(), {x},
                                [](const Tensor&, Gradients& out) { out.give(0, ops::full({2}, 1.0)); });
  REQUIRE_THROWS_WITH(backward(wrong), ContainsSubstring("wrong: the gradient of input 0"));
  const Variable silent = record("silent", x.value(), {x}, [](const Tensor&, Gradients&) {});
  REQUIRE_THROWS_WITH(backward(silent), ContainsSubstring("silent: backward gave no gradient"));
}

TEST_CASE("nothing is recorded under NoGrad", "[autograd][engine]") {
  const Variable x = leaf(1);
  const NoGrad scope;
  REQUIRE_FALSE((x * 2.0).requires_grad());
}

TEST_CASE("a chain of a million operations is run and freed without recursion", "[autograd][engine]") {
  Variable x = leaf(1);
  Variable y = x;
  for (int i = 0; i < 1'000'000; ++i)
    y = record("step", y.value(), {y}, [](const Tensor& dy, Gradients& out) { out.give(0, dy); });
  SECTION("run") {
    backward(y);
    REQUIRE(x.grad().item() == 1);
  }
  SECTION("dropped unused") {
    y = Variable();
    REQUIRE(x.is_leaf());
  }
}

TEST_CASE("an observer learns which leaves a backward reaches before it starts", "[autograd][engine]") {
  Variable a = leaf(1), b = leaf(1), c = leaf(1);
  const auto observer = std::make_shared<Recorder>();
  for (Variable* v : {&a, &b, &c}) v->set_observer(observer);
  backward(a * 2.0 + b + b);
  REQUIRE(observer->reached_count == 2);
  REQUIRE(observer->log == "(rr)");
  SECTION("not at all if it reaches none") {
    backward(leaf(1) * 2.0);
    REQUIRE(observer->log == "(rr)");
  }
  SECTION("with the labels of the operation it starts from, which scaling keeps") {
    Variable y;
    {
      const GraphLabel outer(1);
      const GraphLabel inner(4);
      y = a * 2.0;
    }
    backward(y * 0.5);
    REQUIRE(observer->last_label == 5);
  }
  SECTION("and without those that only some operands carry") {
    Variable y;
    {
      const GraphLabel scope(4);
      y = a * 2.0;
    }
    backward(y + b * 2.0);
    REQUIRE(observer->last_label == 0);
  }
}

TEST_CASE("backward through a chain holds two gradients at a time", "[autograd][engine]") {
  const std::int64_t size = 1 << 17, bytes = 8 * size;
  Variable x = Variable::parameter(test::random({size}, 1, DType::f64));
  Variable y = x;
  for (int i = 0; i < 6; ++i) y = tanh(y);
  const Tensor dy = test::random({size}, 2, DType::f64);
  Runtime& memory = runtime({});
  memory.reset_peak();
  const std::int64_t before = memory.memory_stats().in_use_bytes;
  backward(y, {.gradient = dy});
  // The first operation frees nothing: its result y is ours. It makes one gradient and the next another.
  REQUIRE(memory.memory_stats().peak_bytes - before <= 2 * bytes + 4096);
}

TEST_CASE("gradients of several uses are added in memory that nobody else sees", "[autograd][engine]") {
  const std::int64_t size = 1 << 17, bytes = 8 * size;
  Variable x = Variable::parameter(test::random({size}, 1, DType::f64));
  const Variable y = x * 1.0;
  const Variable z = tanh(y) + exp(y) * 2.0 + y;
  const Tensor dz = test::random({size}, 2, DType::f64);
  std::vector<Tensor> kept;  // A hook may hold on to a contribution: then it is not written to.
  const auto gradient = [&] { return grad(z, {x}, {.gradient = dz, .retain_graph = true})[0]; };
  const Tensor expected = gradient();
  {
    Variable observed = y;
    HookHandle hook = observed.register_hook([&](const Tensor& contribution) {
      kept.push_back(contribution);
      return Tensor();
    });
    REQUIRE(test::differs_bitwise(gradient(), expected) == "");
    REQUIRE(kept.size() == 3);
    Tensor sum = ops::add(kept[0], kept[1]);
    REQUIRE(test::differs(ops::add(sum, kept[2]), expected, 1e-14) == "");
    kept.clear();
    hook.remove();
  }
  Runtime& memory = runtime({});
  memory.reset_peak();
  const std::int64_t before = memory.memory_stats().in_use_bytes;
  static_cast<void>(gradient());
  REQUIRE(memory.memory_stats().peak_bytes - before <= 3 * bytes + 4096);
}

TEST_CASE("a gradient shared by two operands is never added to in place", "[autograd][engine]") {
  Variable x1 = leaf(1), x2 = leaf(1);
  const Variable a = x1 * 1.0, b = x2 * 1.0, later = a * 3.0;
  // The sum runs first and gives a and b the same tensor; then `later` adds to a's.
  backward((a + b) + later);
  REQUIRE(x1.grad().item() == 4);
  REQUIRE(x2.grad().item() == 1);
}

TEST_CASE("an operation that takes a bound leaf twice gives it both contributions", "[autograd][engine]") {
  const auto both = [](Variable w) {
    const Variable y = linear(w, w, {});  // w wᵀ
    backward(sum(y * y));
    return ops::clone(w.grad());
  };
  const Tensor expected = both(Variable::parameter(test::random({3, 3}, 1)));
  Variable bound = Variable::parameter(test::random({3, 3}, 1));
  bound.bind_grad(ops::full({3, 3}, 7.0));
  REQUIRE(test::differs(both(bound), expected, 1e-6, 1e-6) == "");
}

TEST_CASE("a hook on a bound leaf sees its contribution, not the leaf's memory",
          "[autograd][engine][hooks]") {
  Variable w = Variable::parameter(test::random({3, 3}, 1));
  Tensor memory = ops::full({3, 3}, 7.0);
  w.bind_grad(memory);
  bool separate = false;
  w.register_hook([&](const Tensor& g) {
    separate = !g.same_view(memory);
    return ops::mul(g, 2.0);
  });
  backward(sum(linear(Variable(ops::full({1, 3}, 1.0)), w, {})));
  REQUIRE(separate);
  REQUIRE(test::differs(memory, ops::full({3, 3}, 2.0), 0) == "");
}

TEST_CASE("grad works on a graph that was begun on another thread", "[autograd][engine]") {
  Variable x = leaf(1);
  const Variable h = exp(x * 2.0) * 1.0;
  Tensor found;
  std::thread([&] { found = grad(h * 3.0, {x})[0]; }).join();
  REQUIRE(found.defined());
  REQUIRE(test::differs(found, ops::full({1}, 6 * std::exp(2.0)), 1e-5) == "");
}

TEST_CASE("grad gives derivatives without touching leaves", "[autograd][engine]") {
  Variable x = leaf(3);
  int fired = 0;
  x.register_post_accumulate_hook([&](Variable&) { ++fired; });
  const Variable h = x * x, y = h * x;
  SECTION("of a leaf") { REQUIRE(grad(y, {x}, {.retain_graph = true})[0].item() == 27); }
  SECTION("of an intermediate result, through which nothing flows on") {
    const auto both = grad(y, {h, x}, {.retain_graph = true});
    REQUIRE(both[0].item() == 3);
    REQUIRE(both[1].item() == 9);
  }
  SECTION("undefined where unreachable") {
    REQUIRE_FALSE(grad(y, {leaf(1)}, {.retain_graph = true})[0].defined());
  }
  REQUIRE(fired == 0);
  REQUIRE_FALSE(x.grad().defined());
}

TEST_CASE("a frozen leaf gets no gradient", "[autograd][engine]") {
  Variable w = leaf(2), x = leaf(3);
  w.set_requires_grad(false);
  backward(w * x);
  REQUIRE_FALSE(w.grad().defined());
  REQUIRE(x.grad().item() == 2);
}
