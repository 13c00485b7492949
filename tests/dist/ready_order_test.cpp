// SPDX-License-Identifier: MIT
// tests/dist/ready_order_test.cpp - the observed order of readiness, and that observing leaves no trace.
#include "dist/ready_order.h"

#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "core/rng.h"
#include "dist/ddp.h"
#include "kernels/ops.h"
#include "nn/batch_norm.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

namespace {

// Leaves a, b, c, d, e of which b is frozen and d is never used.
std::vector<nn::NamedParameter> leaves() {
  std::vector<nn::NamedParameter> out;
  for (const char* name : {"a", "b", "c", "d", "e"})
    out.push_back({name, Variable::parameter(ops::full({4}, 1.0))});
  out[1].variable.set_requires_grad(false);
  return out;
}

// Backward visits the latest use first.
void use(const std::vector<nn::NamedParameter>& parameters, const std::vector<std::size_t>& in_this_order) {
  Variable loss = sum(parameters[in_this_order[0]].variable * 2.0);
  for (std::size_t i = 1; i < in_this_order.size(); ++i) {
    const Variable term = sum(parameters[in_this_order[i]].variable * 2.0);
    loss = loss + term;
  }
  backward(loss);
}

}  // namespace

TEST_CASE("the observed order is backward's, without frozen parameters and with unused ones last, in reverse",
          "[dist][plan][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto parameters = leaves();
    // Trainable: a 0, c 1, d 2, e 3.
    const auto order = observe_ready_order(parameters, {}, group, [&] { use(parameters, {4, 0, 2}); });
    require(order == std::vector<int>{1, 0, 3, 2}, "c, a, e, then d");
    const auto unused = observe_ready_order(parameters, {}, group, [] {});
    require(unused == std::vector<int>{3, 2, 1, 0}, "the reverse");
  });
}

TEST_CASE("ranks that observe different orders all get rank 0's, and a Ddp can use it",
          "[dist][plan][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto parameters = leaves();
    const bool odd = group.rank() % 2 == 1;
    const auto run = [&] {
      use(parameters, odd ? std::vector<std::size_t>{0, 2, 4} : std::vector<std::size_t>{2, 4, 0});
    };
    PlanOptions plan{.order = "ready", .caps = {.bytes = 16, .first_bytes = 16}};
    plan.observed = observe_ready_order(parameters, {}, group, run);
    require(plan.observed == std::vector<int>{0, 3, 1, 2}, "a, e, c, then d");
    DdpOptions options{.unused = UnusedParameters::zero};
    options.plan = plan;
    Ddp ddp(parameters, {}, group, options);
    require(ddp.plan().order == plan.observed, "the plan's order");
    run();
    test::require_same({parameters[4].variable.grad()}, {ops::full({4}, 2.0)}, "gradient");
  });
}

TEST_CASE("observing leaves buffers, gradients, random numbers and observers as they were",
          "[dist][plan][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    nn::BatchNorm2d bn(3);
    const auto parameters = bn.named_parameters();
    const auto rank = static_cast<std::uint64_t>(group.rank());
    std::vector<Tensor> before;
    for (const auto& buffer : bn.named_buffers()) before.push_back(ops::clone(buffer.tensor));
    default_generator() = {.seed = 5, .next_stream = rank};
    const Generator generator = default_generator();
    const auto check = [&](const char* when) {
      std::vector<Tensor> after;
      for (const auto& buffer : bn.named_buffers()) after.push_back(buffer.tensor);
      test::require_same(after, before, when);
      require(default_generator() == generator, str(when, ": generator"));
      for (const auto& p : parameters)
        require(!p.variable.grad().defined() && !p.variable.has_observer(), str(when, ": ", p.name));
    };
    const auto run = [&] { backward(sum(dropout(bn(test::random({2, 3, 2, 2}, rank)), 0.5))); };
    observe_ready_order(parameters, bn.named_buffers(), group, run);
    check("after a run");
    const std::string thrown = test::thrown_by([&] {
      observe_ready_order(parameters, bn.named_buffers(), group, [&] {
        run();
        throw Error("deliberate failure");
      });
    });
    test::require_contains(thrown, "deliberate failure");
    check("after a failure");
  });
}

TEST_CASE("parameters of a Ddp are not observed", "[dist][plan][ranks][error]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    const Ddp ddp(model->named_parameters(), {}, group);
    test::require_contains(
        test::thrown_by([&] { observe_ready_order(model->named_parameters(), {}, group, [] {}); }),
        "observe_ready_order: parameter \"0.weight\" belongs to a Ddp already");
  });
}
