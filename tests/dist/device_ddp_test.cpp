// SPDX-License-Identifier: MIT
// tests/dist/device_ddp_test.cpp - Ddp with parameters on a device, real or emulated: gradients, what is not finite,
// and what the ledger knows when.
#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "dist/ddp.h"
#include "kernels/ops.h"
#include "nn/optim/adamw.h"
#include "nn/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

namespace {

bool no_gpu() { return device() != "cuda" || device_count(DeviceType::cuda) == 0; }

// Three parameters in as many buckets; the gradient of each is rank + 1 in all elements.
struct Subject {
  Subject(ProcessGroup& group_of_ranks, DdpOptions options, Device where) : group(group_of_ranks) {
    for (int i = 0; i < 3; ++i)
      parameters.push_back({str("p", i), Variable::parameter(Tensor::zeros({40}, DType::f32, where))});
    options.plan.rule = "size";
    options.plan.caps.list = {100};
    options.plan.caps.bytes = 100;
    options.check_every = 1;
    ddp.emplace(parameters, std::vector<nn::NamedBuffer>{}, group, options);
  }

  enum class Gradient { finite, infinite };
  /// infinite: that of the second parameter, while the loss stays finite.
  void backward_with(Gradient kind) {
    ddp->parameters().zero_grad();
    Variable loss;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float> factors(40, static_cast<float>(group.rank() + 1));
      const Tensor weights = Tensor::from(factors, {40}).to(parameters[i].variable.value().device());
      const Variable term = sum(parameters[i].variable * weights);
      loss = loss.defined() ? loss + term : term;
    }
    if (kind == Gradient::infinite) {  // The slope of a root at 0.
      const Variable second = parameters[1].variable;
      const Variable zero = second - Variable(ops::clone(second.value()));
      const Variable root = sqrt(zero);
      loss = loss + sum(root);
    }
    backward(loss);
  }

  Tensor value(std::size_t i) const { return parameters[i].variable.value().to({}); }

  ProcessGroup& group;
  std::vector<nn::NamedParameter> parameters;
  std::optional<Ddp> ddp;
};

Tensor all(float value) { return Tensor::from(std::vector<float>(40, value), {40}); }

using Gradient = Subject::Gradient;

}  // namespace

TEST_CASE("means of gradients on a device reach the optimizer on all ranks, under each hook that works there",
          "[dist][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for (const char* hook : {"none", "bf16", "f16"})
    for_each_world(
        [&](ProcessGroup& group) {
          Subject subject(group, {.hook = hook}, group.device());
          optim::Sgd optimizer(subject.ddp->parameters(), 0.5);
          const auto mean = static_cast<float>(group.size() + 1) / 2;
          for (int step = 1; step <= 4; ++step) {
            subject.backward_with(Gradient::finite);
            optimizer.step();
            for (std::size_t i = 0; i < 3; ++i)
              require_same(subject.value(i), all(-0.5f * mean * static_cast<float>(step)),
                           str(hook, ", step ", step));
          }
          const Ledger& ledger = subject.ddp->ledger();
          require(ledger.steps_recorded() == 4 && ledger.steps_settled() == 2, "settled two steps later");
          subject.ddp->ledger().settle();
          for (const StepRecord& record : ledger.steps())
            for (const BucketRecord& bucket : record.buckets)
              require(record.settled && bucket.first_ready <= bucket.last_ready &&
                          bucket.start <= bucket.end && bucket.last_ready <= bucket.start,
                      "a bucket travels when its last gradient is there");
        },
        {.sizes = {1, 2, 4}});
}

TEST_CASE(
    "a gradient on a device that is not finite changes nothing, and is named alike on all ranks a step later",
    "[dist][device][error]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world(
      [](ProcessGroup& group) {
        Subject subject(group, {}, group.device());
        optim::Sgd optimizer(subject.ddp->parameters(), 0.5, {.momentum = 0.9});
        subject.backward_with(Gradient::finite);
        optimizer.step();
        const Tensor before = subject.value(0);
        subject.backward_with(group.rank() == 1
                                  ? Gradient::infinite
                                  : Gradient::finite);  // Does not throw: nobody waits for the device.
        optimizer.step();
        for (std::size_t i = 0; i < 3; ++i) require_same(subject.value(i), before, "unchanged");
        const std::string thrown = thrown_by([&] { subject.backward_with(Gradient::finite); });
        require_contains(
            thrown, "ddp: step 2: the loss is finite, but the gradient is not; first on rank 1, bucket 1");
        require_contains(thrown, "parameter \"p1\"; nothing was updated");
      },
      {.sizes = {2, 3}});
}

TEST_CASE("a step that a device skips is skipped by all ranks, and not counted", "[dist][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world(
      [](ProcessGroup& group) {
        const auto train = [&](bool stumbles) {
          Subject subject(group, {.non_finite = NonFinite::skip}, group.device());
          optim::Adamw optimizer(subject.ddp->parameters(), 0.1);
          subject.backward_with(Gradient::finite);
          optimizer.step();
          if (stumbles) {
            subject.backward_with(group.rank() == 0 ? Gradient::infinite : Gradient::finite);
            optimizer.step();
          }
          subject.backward_with(Gradient::finite);
          require(subject.ddp->skipped() == stumbles, "skipped() tells of the step before");
          optimizer.step();
          return subject.value(1);
        };
        const Tensor without = train(false), with = train(true);
        require_same(with, without, "as if the step had not been");
      },
      {.sizes = {1, 2}});
}

TEST_CASE("hooks that need the CPU refuse parameters on a device and name those that do not",
          "[dist][device][error]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world(
      [](ProcessGroup& group) {
        require_contains(thrown_by([&] { Subject(group, {.hook = "topk"}, group.device()); }),
                         "comm hook topk: works on the CPU only; got parameters on cuda:");
      },
      {.sizes = {1}});
}
