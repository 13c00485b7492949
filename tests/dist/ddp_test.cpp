// SPDX-License-Identifier: MIT
// tests/dist/ddp_test.cpp - Ddp against training on one rank: reuse, unused parameters, no_sync, buffers
// (cases A01, A02, A03, A05, A07). Ranks always get different data.
#include "dist/ddp.h"

#include <thread>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "kernels/ops.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

namespace {

// h = L(relu(L(x))), then a head: one Linear applied twice, a second module holding the same weight as a third.
class Reusing : public nn::Module {
 public:
  Reusing() : shared(16, 16), head(16, 10), tied(head.weight), back(10, 16) {
    register_module("shared", shared);
    register_module("head", head);
    register_module("tied", tied);
    register_module("back", back);
  }
  Variable forward(const Variable& x) override {
    const Variable h = head(relu(shared(relu(shared(x)))));
    return tied(relu(back(h)));
  }
  nn::Linear shared, head, tied, back;
};

// A layer that only some ranks, or none, call.
class PartlyUsed : public nn::Module {
 public:
  PartlyUsed() : always(16, 10), sometimes(16, 10) {
    register_module("always", always);
    register_module("sometimes", sometimes);
  }
  Variable forward(const Variable& x) override {
    return call_sometimes ? always(x) + sometimes(x) : always(x);
  }
  nn::Linear always, sometimes;
  bool call_sometimes = false;
};

std::vector<Tensor> serial_gradients(nn::Module& model, const Shape& features, std::int64_t batch,
                                     std::uint64_t seed) {
  model.zero_grad();
  backward(test::toy_loss(model, test::toy_batch(features, batch, 0, 1, seed)));
  return test::copy_gradients(model);
}

int bucket_reductions(const Ddp& ddp) {
  int count = 0;
  for (const StepRecord& step : ddp.ledger().steps()) count += static_cast<int>(step.buckets.size());
  return count;
}

}  // namespace

TEST_CASE("a reused and a tied parameter are reduced once, after the last use, as the sum of their uses",
          "[dist][ddp][ranks][A01]") {
  for (const Strategy& strategy : strategies())
    test::for_each_world([&](ProcessGroup& group) {
      default_generator() = {.seed = 3};
      Reusing serial;
      const auto expected = serial_gradients(serial, {16}, 24, 5);
      default_generator() = {.seed = 3};
      Reusing model;
      require(model.named_parameters().size() == 6, "the tied weight counts once");
      Ddp ddp(model.named_parameters(), model.named_buffers(), group,
              {.strategy = std::string(strategy.name), .plan = {.caps = {.bytes = 700, .first_bytes = 100}}});
      ddp.parameters().zero_grad();
      backward(test::toy_loss(model, test::toy_batch({16}, 24, group.rank(), group.size(), 5)));
      test::require_close(test::copy_gradients(model), expected, 1e-6, str(strategy.name));
      require(bucket_reductions(ddp) == static_cast<int>(ddp.plan().buckets.size()),
              "each bucket is reduced exactly once");
    });
}

TEST_CASE("checkpointed segments mark every parameter ready once", "[dist][ddp][ranks][A01]") {
  test::for_each_world([&](ProcessGroup& group) {
    default_generator() = {.seed = 3};
    Reusing model;
    Ddp ddp(model.named_parameters(), {}, group);
    const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 5);
    ddp.parameters().zero_grad();
    backward(test::toy_loss(model, batch));
    const auto plain = test::copy_gradients(model);
    ddp.parameters().zero_grad();
    const Variable logits = checkpoint([&](const Variable& x) { return model(x); }, batch.inputs);
    backward(cross_entropy(logits, batch.labels));
    test::require_close(test::copy_gradients(model), plain, 1e-6, "checkpointed");
  });
}

TEST_CASE("a parameter no rank uses is an error that names it, on every rank",
          "[dist][ddp][ranks][A02][error]") {
  test::for_each_world([&](ProcessGroup& group) {
    PartlyUsed model;
    Ddp ddp(model.named_parameters(), {}, group);
    const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 5);
    const std::string text = test::thrown_by([&] { backward(test::toy_loss(model, batch)); });
    test::require_contains(text, "Error: ddp: 2 of 4 parameters took no part in the loss on some rank");
    test::require_contains(text, str("\"sometimes.weight\" (used on 0 of ", group.size(), " ranks)"));
  });
}

TEST_CASE("a parameter only rank 0 uses is an error that names it, on every rank",
          "[dist][ddp][ranks][A02][error]") {
  test::for_each_world([&](ProcessGroup& group) {
    if (group.size() == 1) return;
    PartlyUsed model;
    model.call_sometimes = group.rank() == 0;
    Ddp ddp(model.named_parameters(), {}, group);
    const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 5);
    const std::string text = test::thrown_by([&] { backward(test::toy_loss(model, batch)); });
    test::require_contains(text, str("\"sometimes.bias\" (used on 1 of ", group.size(), " ranks)"));
  });
}

TEST_CASE("with UnusedParameters::zero a globally unused parameter stays untouched and has no gradient",
          "[dist][ddp][ranks][A02]") {
  test::for_each_world([&](ProcessGroup& group) {
    PartlyUsed model;
    Ddp ddp(model.named_parameters(), {}, group, {.unused = UnusedParameters::zero});
    backward(test::toy_loss(model, test::toy_batch({16}, 24, group.rank(), group.size(), 5)));
    require(!model.sometimes.weight.grad().defined(), "no gradient, so no update");
    require(model.always.weight.grad().defined(), "the used one has its gradient");
  });
}

TEST_CASE("with UnusedParameters::zero a parameter one rank uses gets the mean with zeros from the others",
          "[dist][ddp][ranks][A02]") {
  test::for_each_world([&](ProcessGroup& group) {
    PartlyUsed model, alone;
    Ddp ddp(model.named_parameters(), {}, group, {.unused = UnusedParameters::zero});
    for (int step = 0; step < 2;
         ++step) {  // Twice: stale memory of the first step must not leak into the second.
      const auto seed = static_cast<std::uint64_t>(5 + step);
      const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), seed);
      ddp.parameters().zero_grad();
      model.call_sometimes = group.rank() == 0;
      backward(test::toy_loss(model, batch));
      // What rank 0 contributes, computed everywhere.
      alone.call_sometimes = true;
      std::size_t i = 0;
      for (const Variable& p : alone.parameters()) {
        Tensor value = p.value();
        ops::copy_(value, model.parameters()[i++].value());
      }
      alone.zero_grad();
      backward(test::toy_loss(alone, test::toy_batch({16}, 24, 0, group.size(), seed)));
      const Tensor expected = ops::mul(alone.sometimes.weight.grad(), 1.0 / group.size());
      test::require_close({model.sometimes.weight.grad()}, {expected}, 1e-6, "mean with zeros");
    }
  });
}

TEST_CASE("no_sync around forward, backward or both gives one round of reduction and the full-batch gradient",
          "[dist][ddp][ranks][A03]") {
  const int placement = GENERATE(0, 1, 2);  // forward only, backward only, both
  test::for_each_world([&](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    const auto reference = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    ddp.parameters().zero_grad();
    for (std::uint64_t micro = 0; micro < 4; ++micro) {
      const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), micro);
      const auto forward = [&] { return test::toy_loss(*model, batch) * 0.25; };
      if (micro == 3) {
        backward(forward());
      } else if (placement == 0) {
        const Variable loss = [&] {
          const auto local = ddp.no_sync();
          return forward();
        }();
        backward(loss);
      } else if (placement == 1) {
        const Variable loss = forward();
        const auto local = ddp.no_sync();
        backward(loss);
      } else {
        const auto local = ddp.no_sync();
        backward(forward());
      }
      backward(test::toy_loss(*reference, test::toy_batch({16}, 24, 0, 1, micro)) * 0.25);
    }
    require(ddp.ledger().steps_recorded() == 1, "one round");
    test::require_close(test::copy_gradients(*model), test::copy_gradients(*reference), 2e-6, "accumulated");
  });
}

TEST_CASE("a parameter used only in an unsynchronised micro-step is synchronised with the rest",
          "[dist][ddp][ranks][A03]") {
  test::for_each_world([&](ProcessGroup& group) {
    auto a = Variable::parameter(ops::full({4}, 1.0)), b = Variable::parameter(ops::full({4}, 1.0));
    Ddp ddp({{"a", a}, {"b", b}}, {}, group);
    {
      const auto local = ddp.no_sync();
      backward(sum(b * (1.0 + group.rank())));
    }
    backward(sum(a));
    const double mean = (group.size() + 1) / 2.0;
    test::require_same({b.grad()}, {ops::full({4}, mean)}, "b");
  });
}

TEST_CASE("buckets of equal size that fill in another order on each rank launch in plan order",
          "[dist][ddp][ranks]") {
  for (const char* strategy : {"per_parameter", "bucketed"})
    test::for_each_world([&](ProcessGroup& group) {
      auto a = Variable::parameter(ops::full({4}, 1.0)), b = Variable::parameter(ops::full({4}, 1.0));
      Ddp ddp({{"a", a}, {"b", b}}, {}, group,
              {.strategy = strategy, .plan = {.caps = {.bytes = 1, .first_bytes = 1}}});
      Variable first, second;
      if (group.rank() % 2 == 0) {
        first = sum(a * 1.0);
        second = sum(b * 10.0);
      } else {
        second = sum(b * 10.0);
        first = sum(a * 1.0);
      }
      backward(first + second);
      test::require_same({a.grad(), b.grad()}, {ops::full({4}, 1.0), ops::full({4}, 10.0)}, strategy);
    });
}

TEST_CASE("after an exception in the middle of backward the next step is right", "[dist][ddp][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    auto a = Variable::parameter(ops::full({4}, 1.0)), b = Variable::parameter(ops::full({4}, 1.0));
    Ddp ddp({{"a", a}, {"b", b}}, {}, group, {.plan = {.caps = {.bytes = 1, .first_bytes = 1}}});
    bool failing = true;
    a.register_hook([&](const Tensor&) -> Tensor {
      if (failing) throw Error("deliberate failure");
      return {};
    });
    const auto step = [&](double scale) {
      const Variable first = sum(a * scale), second = sum(b * (scale * (1 + group.rank())));
      backward(first + second);  // Recorded last, run first: b's bucket is launched before a's hook throws.
    };
    // Rank 0 throws with b's bucket under way, because the others come late to it, and goes on at once; the
    // others go on when that bucket has been reduced.
    const auto late = [&] {
      if (group.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    };
    b.register_hook([&](const Tensor&) -> Tensor {
      if (failing) late();
      return {};
    });
    test::require_contains(test::thrown_by([&] { step(1); }), "deliberate failure");
    failing = false;
    late();
    ddp.parameters().zero_grad();
    step(10);
    const double mean = 10 * (group.size() + 1) / 2.0;
    test::require_same({a.grad(), b.grad()}, {ops::full({4}, 10.0), ops::full({4}, mean)}, "second step");
  });
}

TEST_CASE("frozen parameters get rank 0's values too", "[dist][ddp][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const Variable frozen(ops::full({2}, 1.0 + group.rank()));
    Ddp ddp({{"a", Variable::parameter(ops::full({4}, 1.0))}, {"frozen", frozen}}, {}, group);
    test::require_same({frozen.value()}, {ops::full({2}, 1.0)}, "frozen");
  });
}

TEST_CASE("two forwards before one backward work with batch norm, and match one rank",
          "[dist][ddp][ranks][A05]") {
  class Net : public nn::Module {
   public:
    Net() : bn(4) { register_module("bn", bn); }
    Variable forward(const Variable& x) override { return bn(x); }
    nn::BatchNorm2d bn;
  };
  test::for_each_world([&](ProcessGroup& group) {
    Net model, alone;
    Ddp ddp(model.named_parameters(), model.named_buffers(), group);
    // Every rank's inputs differ; the expected mean is computed from all of them by one rank's worth of code.
    const auto inputs = [](int rank, int k) {
      return test::random({6, 4, 2, 2}, static_cast<std::uint64_t>(10 * rank + k));
    };
    const auto loss = [&](nn::Module& net, int rank) {
      const Variable one = net(inputs(rank, 0)), two = net(inputs(rank, 1));
      return mse_loss(one, inputs(rank, 2)) + mse_loss(two, inputs(rank, 3));
    };
    backward(loss(model, group.rank()));
    for (int rank = 0; rank < group.size(); ++rank) backward(loss(alone, rank) * (1.0 / group.size()));
    test::require_close(test::copy_gradients(model), test::copy_gradients(alone), 1e-5, "two forwards");
  });
}

TEST_CASE("construction gives every rank rank 0's parameters and buffers", "[dist][ddp][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const auto model = test::toy_mlp(static_cast<std::uint64_t>(100 + group.rank()));
    nn::BatchNorm2d bn(3);
    Tensor mean = bn.named_buffers()[0].tensor;
    ops::fill_(mean, group.rank() + 1);
    auto parameters = model->named_parameters();
    Ddp ddp(parameters, bn.named_buffers(), group);
    test::require_same(test::copy_values(*model), test::copy_values(*test::toy_mlp(100)), "parameters");
    require(mean.select(0, 0).item() == 1, "buffers");
  });
}

TEST_CASE("gradients lie in shared memory where ranks share it", "[dist][ddp][shm][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    const bool shares = group.backend().find("shared memory") != std::string_view::npos;
    for (const auto& p : model->named_parameters())
      require(test::lies_in_shared_memory(p.variable.grad_memory().raw()) == shares, p.name);
  });
}

TEST_CASE("ranks that built different models are told the first difference, rank 0 included",
          "[dist][ddp][ranks][A07][error]") {
  const int kind = GENERATE(0, 1, 2);
  test::for_each_world([&](ProcessGroup& group) {
    if (group.size() == 1) return;
    const bool odd = group.rank() == 1;
    auto a = Variable::parameter(test::random({4, 3}, 1)), b = Variable::parameter(test::random({3}, 2));
    std::vector<nn::NamedParameter> list{{"fc.weight", a}, {"fc.bias", b}};
    if (odd && kind == 0) list.push_back({"extra.weight", Variable::parameter(test::random({2}, 3))});
    if (odd && kind == 1) list[0].variable = Variable::parameter(test::random({3, 4}, 1));
    if (odd && kind == 2) list[1].name = "fc.offset";
    const std::string expected[] = {
        "first difference at index 2: rank 0 has nothing, rank 1 has parameter extra.weight f32 [2]",
        "rank 0 has parameter fc.weight f32 [4, 3], rank 1 has parameter fc.weight f32 [3, 4]",
        "rank 0 has parameter fc.bias f32 [3], rank 1 has parameter fc.offset f32 [3]"};
    test::require_contains(test::thrown_by([&] { Ddp(list, {}, group); }), expected[kind]);
  });
}

TEST_CASE("wrapping twice, wrapping nothing and unfreezing later are refused by name",
          "[dist][ddp][ranks][error]") {
  test::for_each_world([&](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    test::require_contains(test::thrown_by([&] { Ddp({}, {}, group); }), "no parameters");
    Variable first_bias = model->parameters()[1];
    first_bias.set_requires_grad(false);
    Ddp ddp(model->named_parameters(), {}, group);
    test::require_contains(test::thrown_by([&] { Ddp(model->named_parameters(), {}, group); }),
                           "\"0.weight\" belongs to another Ddp");
    require(ddp.parameters().count() == 3, "the frozen one has no place in the plan");
    first_bias.set_requires_grad(true);
    const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 5);
    test::require_contains(test::thrown_by([&] { backward(test::toy_loss(*model, batch)); }),
                           "\"0.bias\" was frozen when the model was wrapped");
  });
}

TEST_CASE("an unknown strategy lists the choices", "[dist][ddp][error]") {
  REQUIRE_THROWS_WITH(
      strategy("bucket"),
      ContainsSubstring("unknown strategy \"bucket\"; choose from naive, flat, per_parameter, bucketed"));
}
