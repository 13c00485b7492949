// SPDX-License-Identifier: MIT
// tests/dist/device_steps_test.cpp - steps of training on a device without the host waiting for it, counted by the
// emulated GPU, and what is found out a step later.
#include <dlfcn.h>

#include <cstdint>
#include <limits>

#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "dist/ddp.h"
#include "kernels/late_checks.h"
#include "models/mlp.h"
#include "nn/optim/catalog.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

namespace {

bool no_gpu() { return device() != "cuda" || device_count(DeviceType::cuda) == 0; }

// tests/fake_gpu/streams.cpp: kind 0, for streams and the whole device; 1, for events. nullptr on a real device.
using CountWaits = std::int64_t (*)(int kind, int of_all_threads);
CountWaits count_waits() { return reinterpret_cast<CountWaits>(dlsym(RTLD_DEFAULT, "counted_host_waits")); }

struct Trainer {
  Trainer(ProcessGroup& group, const std::string& rule, DdpOptions options) : checks(group.device()) {
    default_generator() = {.seed = 1};
    model.emplace(models::MlpOptions{.inputs = 12, .hidden = {8}, .classes = 3});
    model->to(group.device());
    options.check_every = 0;
    ddp.emplace(model->named_parameters(), model->named_buffers(), group, options);
    optimizer = optim::make_optimizer(
        rule, ddp->parameters(),
        {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .decay = optim::DecayOn::matrices});
    images = Tensor(random({4, 12}, static_cast<std::uint64_t>(group.rank() + 1))).to(group.device());
  }

  Tensor labels(std::int64_t second) const {
    return Tensor::from(std::vector<std::int64_t>{0, second, 2, 0}, {4}).to(images.device());
  }
  Variable loss_of(const Tensor& labels_there) {
    ddp->parameters().zero_grad();
    const Variable out = (*model)(Variable(images));
    return cross_entropy(out, labels_there);
  }
  void judge() {
    checks.judge();
    checks.fetch();
  }
  std::vector<float> value() { return ddp->parameters().at(0).variable.value().to({}).to_vector<float>(); }

  LateChecks checks;
  std::optional<models::Mlp> model;
  std::optional<Ddp> ddp;
  std::unique_ptr<optim::Optimizer> optimizer;
  Tensor images;
};

}  // namespace

TEST_CASE(
    "between the first bucket's launch and the optimizer's end nobody waits for the device, nor for a stream "
    "in the whole step",
    "[dist][device][waits]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  const CountWaits waits = count_waits();
  if (waits == nullptr) return;  // Not skip(): that would hide the other cases of this entry.
  for (const char* rule : {"sgd", "adamw", "lars"})
    for_each_world(
        [&](ProcessGroup& group) {
          if (!group.why_not_captured().empty()) return;  // Copies through the host wait.
          // Other ranks of this process begin their steps, and wait for their older ones, at any time.
          const int all = group.size() == 1 ? 1 : 0;
          const auto both = [&] { return waits(0, all) + waits(1, all); };
          Trainer trainer(group, rule, {.clip_norm = 0.1});
          const Tensor labels = trainer.labels(1);
          for (int step = 0; step < 6; ++step) {
            const std::int64_t streams = waits(0, all);
            Variable loss = trainer.loss_of(labels);
            trainer.judge();
            std::int64_t begin = -1;
            loss.register_hook([&](const Tensor&) {  // Behind all that comes before the first gradient.
              begin = both();
              return Tensor();
            });
            backward(loss);
            trainer.optimizer->step();
            if (step < 3) continue;  // Memory and algorithms settle first.
            require(begin >= 0 && both() == begin,
                    str(rule, ": ", both() - begin, " waits from the first gradient on, in step ", step));
            require(waits(0, all) == streams,
                    str(rule, ": ", waits(0, all) - streams, " waits for a stream in step ", step));
          }
        },
        {.sizes = {1, 2}});
}

TEST_CASE("on a device, too, a micro-step whose loss is not finite is told with the step",
          "[dist][device][A28][error]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world(
      [](ProcessGroup& group) {
        Trainer trainer(group, "sgd", {});
        const bool wrong = group.rank() == group.size() - 1;
        const Variable loss = trainer.loss_of(trainer.labels(1));
        {
          const auto local = trainer.ddp->no_sync();
          backward(loss * (wrong ? std::numeric_limits<double>::quiet_NaN() : 1.0));
        }
        backward(cross_entropy((*trainer.model)(Variable(trainer.images)), trainer.labels(1)));
        const std::string verdict = thrown_by([&] { trainer.ddp->settle(); });
        require_contains(verdict,
                         str("ddp: step 1: the loss is not finite; first on rank ", group.size() - 1));
      },
      {.sizes = {1, 2}});
}

TEST_CASE(
    "a label out of range is told in the words of the CPU, a step later, and nothing is updated meanwhile",
    "[dist][device][error]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for_each_world(
      [](ProcessGroup& group) {
        Trainer trainer(group, "sgd", {});
        const auto step = [&](std::int64_t label) {
          Variable loss = trainer.loss_of(trainer.labels(label));
          trainer.judge();
          backward(loss);
          trainer.optimizer->step();
        };
        step(1);
        const std::vector<float> before = trainer.value();
        const bool wrong = group.rank() == group.size() - 1;
        step(wrong ? 7 : 1);
        require(trainer.value() == before, "unchanged");
        const Variable loss = trainer.loss_of(trainer.labels(1));
        const std::string late = thrown_by([&] { trainer.judge(); });
        if (wrong)
          require_contains(late,
                           "cross_entropy: labels must lie in [0, 3) or be ignore_index -100; got label 7 at "
                           "sample 1 with 3 classes");
        else
          require(late.empty(), "only the rank with the label knows");
        const std::string verdict = thrown_by([&] { backward(loss); });
        require_contains(verdict, "ddp: step 2: the loss is not finite");
        require_contains(verdict, str("first on rank ", group.size() - 1));
      },
      {.sizes = {1, 2}});
}

TEST_CASE("a clipped step on a device is the CPU's, and tells the same norm", "[dist][device]") {
  if (no_gpu()) return skip("needs BRIGADE_TEST_DEVICE=cuda and a device");
  for (const char* rule : {"sgd", "adamw", "lars"})
    for_each_world(
        [&](ProcessGroup& group) {
          Trainer there(group, rule, {.clip_norm = 0.1});
          default_generator() = {.seed = 1};
          models::Mlp model({.inputs = 12, .hidden = {8}, .classes = 3});
          Ddp ddp(model.named_parameters(), {}, group, {.clip_norm = 0.1});
          const auto optimizer = optim::make_optimizer(
              rule, ddp.parameters(),
              {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .decay = optim::DecayOn::matrices});
          const Tensor images = there.images.to({}), labels = there.labels(1).to({});
          for (int step = 0; step < 3; ++step) {
            const Variable loss = there.loss_of(there.labels(1));
            there.judge();
            backward(loss);
            there.optimizer->step();
            ddp.parameters().zero_grad();
            const Variable out = model(Variable(images));
            backward(cross_entropy(out, labels));
            optimizer->step();
            const double norm = ddp.grad_norm();
            require(norm > 0.1 && std::abs(there.ddp->grad_norm() - norm) < 1e-4 * norm,
                    str(rule, ": norms ", there.ddp->grad_norm(), " and ", norm));
          }
          for (int i = 0; i < ddp.parameters().count(); ++i) {
            const auto a = ddp.parameters().at(i).variable.value().to_vector<float>();
            const auto b = there.ddp->parameters().at(i).variable.value().to({}).to_vector<float>();
            for (std::size_t k = 0; k < a.size(); ++k)
              require(std::abs(a[k] - b[k]) < 1e-4, str(rule, ", parameter ", i, ": ", a[k], " and ", b[k]));
          }
        },
        {.sizes = {1, 2}});
}
