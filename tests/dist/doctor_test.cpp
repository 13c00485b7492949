// SPDX-License-Identifier: MIT
// tests/dist/doctor_test.cpp - what is always watched: calls that differ, parameters that drift, gradients that are not
// finite (case A28), parameters frozen, moved or replaced after wrapping. Every kind of failure matches its message.
#include "dist/doctor.h"

#include <limits>

#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/matmul.h"
#include "dist/ddp.h"
#include "kernels/ops.h"
#include "nn/optim/clip.h"
#include "nn/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Variable loss_of(nn::Module& model, const ProcessGroup& group, int step = 0) {
  return test::toy_loss(
      model, test::toy_batch({16}, 24, group.rank(), group.size(), static_cast<std::uint64_t>(step)));
}

// Makes one element of a parameter's next gradients NaN.
HookHandle poison(Variable parameter) {
  return parameter.register_hook([](const Tensor& gradient) {
    Tensor bad = ops::clone(gradient);
    bad.data<float>()[0] = kNan;
    return bad;
  });
}

}  // namespace

TEST_CASE(
    "another bucket plan on one rank is reported with both buckets and their parameters, before any moves",
    "[dist][doctor][A08][error]") {
  test::for_each_world(
      [](ProcessGroup& group) {
        const auto model = test::toy_mlp();
        const double cap = group.rank() == 1 ? 1e9 : 1;
        Ddp ddp(model->named_parameters(), {}, group, {.plan = {.caps = {.bytes = cap, .first_bytes = cap}}});
        const auto before = test::copy_values(*model);
        const std::string text = test::thrown_by([&] { backward(loss_of(*model, group)); });
        test::require_contains(text, "CommError");
        test::require_contains(
            text,
            "rank 1: expected bucket 0: f32, 40 bytes (2.bias) as on rank 0, got bucket 0: f32, "
            "3496 bytes (2.bias, 2.weight, 0.bias, 0.weight)");
        test::require_same(test::copy_values(*model), before, "nothing was updated");
      },
      {.sizes = {2, 3}});
}

TEST_CASE("a rank that is a step ahead is told so", "[dist][doctor][error]") {
  test::for_each_world(
      [](ProcessGroup& group) {
        const auto model = test::toy_mlp();
        const Tensor slots = Tensor::zeros({1}, DType::f32);
        const auto texts = std::make_shared<RollCallTexts>();
        const RollCall call(group, {.step = group.rank() == 1 ? 8 : 7}, texts);
        test::require_contains(test::thrown_by([&] { call.wait(); }),
                               "rank 1: expected step 8 as on rank 0, got step 9");
      },
      {.sizes = {2, 4}});
}

TEST_CASE("a parameter that drifted on one rank is named with rank and step", "[dist][doctor][error]") {
  test::for_each_world(
      [](ProcessGroup& group) {
        const auto model = test::toy_mlp();
        Ddp ddp(model->named_parameters(), {}, group, {.check_every = 2});
        optim::Sgd optimizer(ddp.parameters(), 0.1);
        const int odd = group.size() - 1;
        const auto train_step = [&](int step) {
          ddp.parameters().zero_grad();
          backward(loss_of(*model, group, step));
          optimizer.step();
        };
        train_step(0);
        if (group.rank() == odd) model->parameters()[1].value().data<float>()[3] += 1e-6F;
        train_step(1);  // Not compared in odd steps.
        const std::string text = test::thrown_by([&] { train_step(2); });
        test::require_contains(text, "the ranks' parameters differ before step 3");
        test::require_contains(text, str("rank ", odd, ": expected \"0.bias\" checksum "));
        for (int rank = 1; rank < odd; ++rank)
          require(text.find(str("rank ", rank, ": expected")) == std::string::npos,
                  "only the odd one is named");
      },
      {.sizes = {2, 3}});
}

TEST_CASE("a NaN in one rank's gradient ends the step on all ranks before an update, and is named",
          "[dist][doctor][ranks][A28][error]") {
  for (const Strategy& strategy : strategies())
    test::for_each_world([&](ProcessGroup& group) {
      const auto model = test::toy_mlp();
      Ddp ddp(model->named_parameters(), {}, group,
              {.strategy = std::string(strategy.name), .plan = {.caps = {.bytes = 1, .first_bytes = 1}}});
      optim::Sgd optimizer(ddp.parameters(), 0.1);
      const int odd = group.size() - 1;
      std::vector<Tensor> last_good;
      std::string text;
      for (int step = 0; step < 9 && text.empty(); ++step) {
        last_good = test::copy_values(*model);
        HookHandle handle;
        if (step == 7 && group.rank() == odd) handle = poison(model->parameters()[1]);
        text = test::thrown_by([&] {
          ddp.parameters().zero_grad();
          backward(loss_of(*model, group, step));
          optimizer.step();
        });
      }
      test::require_contains(
          text, str("ddp: step 8: the loss is finite, but the gradient is not; first on rank ", odd));
      test::require_contains(text, "parameter \"0.bias\"; nothing was updated");
      test::require_same(test::copy_values(*model), last_good, "no rank used it");
    });
}

TEST_CASE("a NaN in one rank's input is told from one in its gradient", "[dist][doctor][ranks][A28][error]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 1);
    const int odd = group.size() - 1;
    if (group.rank() == odd) batch.inputs.data<float>()[5] = kNan;
    const std::string text = test::thrown_by([&] { backward(test::toy_loss(*model, batch)); });
    test::require_contains(
        text, str("step 1: the loss is not finite; first on rank ", odd, ", bucket 0, parameter \"2."));
  });
}

TEST_CASE("a NaN in the input of a micro-step is told when its gradients travel, and skipping says why",
          "[dist][doctor][ranks][A28][error]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group, {.non_finite = NonFinite::skip});
    const int odd = group.size() - 1;
    for (int step = 0; step < 2; ++step) {
      ddp.parameters().zero_grad();
      auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 1 + step);
      const auto good = test::toy_batch({16}, 24, group.rank(), group.size(), 7 + step);
      if (group.rank() == odd && step == 0) batch.inputs.data<float>()[5] = kNan;
      {
        const auto local = ddp.no_sync();
        backward(test::toy_loss(*model, batch));
      }
      backward(test::toy_loss(*model, good));
      require(ddp.skipped() == (step == 0), "the first step only");
    }
    require(ddp.last_skipped_step() == 1, "counted from 1");
    test::require_contains(ddp.skip_reason(),
                           str("the loss is not finite; first on rank ", odd, ", bucket 0, parameter \"2."));
  });
}

TEST_CASE("a micro-step whose gradients were dropped tells nothing of the step",
          "[dist][doctor][ranks][A28][error]") {
  const bool another = GENERATE(false, true);  // Micro-step, behind the one that was dropped.
  test::for_each_world([&](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    const auto good = test::toy_batch({16}, 24, group.rank(), group.size(), 1);
    auto bad = test::toy_batch({16}, 24, group.rank(), group.size(), 1);
    bad.inputs.data<float>()[5] = kNan;
    {
      const auto local = ddp.no_sync();
      backward(test::toy_loss(*model, bad));
      ddp.parameters().zero_grad();
      if (another) backward(test::toy_loss(*model, good));
    }
    require(test::thrown_by([&] { backward(test::toy_loss(*model, good)); }).empty(), "the step counts");
  });
}

TEST_CASE("an infinite loss ends the step though its gradients are finite",
          "[dist][doctor][ranks][A28][error]") {
  for (const NonFinite policy : {NonFinite::error, NonFinite::ignore})
    test::for_each_world([&](ProcessGroup& group) {
      const auto model = test::toy_mlp();
      Ddp ddp(model->named_parameters(), {}, group, {.non_finite = policy});
      const int odd = group.size() - 1;
      const std::string text = test::thrown_by([&] {
        const Variable loss = loss_of(*model, group, 0);
        backward(group.rank() == odd ? loss + std::numeric_limits<double>::infinity() : loss);
      });
      if (policy == NonFinite::ignore)
        require(text.empty(), "nobody looks: " + text);
      else
        test::require_contains(
            text, str("step 1: the loss is not finite, although all gradients are; first on rank ", odd));
    });
}

TEST_CASE("NonFinite::skip drops the step on all ranks and training goes on", "[dist][doctor][ranks][A28]") {
  for (const char* hook : {"none", "topk:0.5"})
    test::for_each_world([&](ProcessGroup& group) {
      const auto model = test::toy_mlp();
      Ddp ddp(model->named_parameters(), {}, group, {.hook = hook, .non_finite = NonFinite::skip});
      optim::Sgd optimizer(ddp.parameters(), 0.1, {.momentum = 0.9});
      for (int step = 0; step < 4; ++step) {
        const auto before = test::copy_values(*model);
        HookHandle handle;
        if (step == 2 && group.rank() == 0) handle = poison(model->parameters()[0]);
        ddp.parameters().zero_grad();
        backward(loss_of(*model, group, step));
        handle.remove();
        optimizer.step();
        require(ddp.skipped() == (step == 2), str("skipped in step 2 only; asked in step ", step));
        if (step == 2) test::require_same(test::copy_values(*model), before, "nothing was updated");
      }
      for (const Tensor& value : test::copy_values(*model))
        require(std::isfinite(ops::sum_of_squares(value)), "no trace of the NaN is left, in no hook either");
      test::require_same_on_all_ranks(test::copy_values(*model), group, "skipped together");
    });
}

TEST_CASE("a mean that weights make infinite in 16 bits ends the step", "[dist][doctor][ranks][A11][error]") {
  test::for_each_world([](ProcessGroup& group) {
    if (group.size() < 3) return;
    Variable p = Variable::parameter(ops::full({8}, 1, DType::f16));
    Ddp ddp({{"p", p}}, {}, group);
    ddp.set_weight(
        group.rank() == 0 ? 1 : 0);  // Rank 0's 30000 count three or four times before the mean is taken.
    const std::string text =
        test::thrown_by([&] { backward(p, {.gradient = ops::full({8}, 30000 - group.rank(), DType::f16)}); });
    test::require_contains(
        text, "all gradients are finite, but their weighted or 16-bit mean is not; first in bucket 0");
  });
}

TEST_CASE("NonFinite::ignore lets it through", "[dist][doctor][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group, {.non_finite = NonFinite::ignore});
    const HookHandle handle = poison(model->parameters()[0]);
    backward(loss_of(*model, group));
    require(std::isnan(model->parameters()[0].grad().data<float>()[0]), "nobody looked");
  });
}

TEST_CASE("frozen later on all ranks a parameter is left alone, and on some ranks only it is refused by name",
          "[dist][doctor][ranks][error]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    optim::Sgd optimizer(ddp.parameters(), 0.1);
    Variable bias = model->parameters()[1];
    bias.set_requires_grad(false);
    const Tensor before = ops::clone(bias.value());
    backward(loss_of(*model, group));
    optimizer.step();
    test::require_same(bias.value(), before, "frozen");
    require(model->parameters()[0].grad().defined(), "the others have their gradient");
    if (group.size() == 1) return;
    ddp.parameters().zero_grad();
    bias.set_requires_grad(group.rank() == 0);
    test::require_contains(
        test::thrown_by([&] { backward(loss_of(*model, group)); }),
        str("frozen on some ranks only: \"0.bias\" (on ", group.size() - 1, " of ", group.size()));
  });
}

TEST_CASE("a parameter moved to other memory after wrapping is refused by name",
          "[dist][doctor][ranks][error]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    const optim::FlatParameters elsewhere(model->named_parameters());
    test::require_contains(test::thrown_by([&] { backward(loss_of(*model, group)); }),
                           "\"2.bias\" was moved to other memory after the model was wrapped");
  });
}

TEST_CASE("a parameter replaced after wrapping is refused by name even where unused ones are allowed",
          "[dist][doctor][ranks][error]") {
  test::for_each_world([](ProcessGroup& group) {
    Variable weight = Variable::parameter(test::random({10, 16}, 1)),
             bias = Variable::parameter(Tensor::zeros({10}));
    Ddp ddp({{"weight", weight}, {"bias", bias}}, {}, group, {.unused = UnusedParameters::zero});
    const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 1);
    const auto loss = [&] { return cross_entropy(linear(batch.inputs, weight, bias), batch.labels); };
    backward(loss());
    weight = Variable::parameter(test::random({10, 16}, 2));
    test::require_contains(test::thrown_by([&] { backward(loss()); }),
                           "\"weight\" takes no part, but another leaf of shape [10, 16] does");
  });
}

TEST_CASE("an input that requires a gradient is no replaced parameter", "[dist][doctor][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group);
    const auto batch = test::toy_batch({16}, 24, group.rank(), group.size(), 1);
    const Variable x = Variable::parameter(batch.inputs);
    backward(cross_entropy((*model)(x), batch.labels));
    require(x.grad().defined(), "its gradient is its own");
  });
}

TEST_CASE("clipping with norms from the communication stream equals clip_grad_norm to the bit",
          "[dist][doctor][ranks]") {
  for (const double max_norm : {0.01, 1e6})
    test::for_each_world([&](ProcessGroup& group) {
      const auto expected = test::toy_mlp(), model = test::toy_mlp();
      Ddp plain(expected->named_parameters(), {}, group);
      backward(loss_of(*expected, group));
      const double norm = optim::clip_grad_norm(plain.parameters(), max_norm);
      Ddp ddp(model->named_parameters(), {}, group,
              {.plan = {.caps = {.bytes = 700}}, .clip_norm = max_norm});
      backward(loss_of(*model, group));
      require(ddp.grad_norm() == norm, str("norm ", norm, "; got ", ddp.grad_norm()));
      test::require_same(test::copy_gradients(*model), test::copy_gradients(*expected), "clipped");
      double squares = 0;
      for (const BucketRecord& bucket : ddp.ledger().last().buckets) squares += bucket.square_norm;
      require(std::abs(std::sqrt(squares) - norm) < 1e-6 * norm, "the ledger has each bucket's share");
    });
}
