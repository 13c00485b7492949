// SPDX-License-Identifier: MIT
// tests/dist/loss_scale_test.cpp - f16 gradients under a loss scale: a step that overflows on one rank is skipped by
// all, and their scales stay equal. On the CPU, and on a device where one is under test.
#include "nn/optim/loss_scale.h"

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/shape_ops.h"
#include "dist/ddp.h"
#include "kernels/ops.h"
#include "nn/optim/adamw.h"
#include "nn/optim/catalog.h"
#include "nn/optim/clip.h"
#include "nn/optim/lars.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;

namespace {

// One parameter, whose gradient is `slope` in all elements and passes through f16, scaled.
struct Subject {
  Subject(ProcessGroup& group, double slope, const optim::LossScaleOptions& options, double clip_norm = 0)
      : parameter(Variable::parameter(ops::full({6}, 1, DType::f32, group.device()))),
        factors(ops::full({6}, slope, DType::f16, group.device())),
        ddp({{"p", parameter}}, {}, group, {.non_finite = NonFinite::skip, .clip_norm = clip_norm}),
        scale(ddp.parameters(), options) {}

  void backward_of_next() {
    ddp.parameters().zero_grad();
    const Variable products = cast(parameter, DType::f16) * Variable(factors);
    const Variable loss = sum(cast(products, DType::f32));
    backward(loss, scale.backward_of(loss));
  }
  void step(optim::Optimizer& optimizer) {
    backward_of_next();
    optimizer.step();
    scale.update(ddp.skipped());
  }
  Tensor value() const { return ops::clone(parameter.value()).to(Device{}); }

  Variable parameter;
  Tensor factors;
  Ddp ddp;
  optim::LossScale scale;
};

}  // namespace

TEST_CASE("a step whose f16 gradients overflow on one rank is skipped by all, and halves every rank's scale",
          "[dist][device][loss-scale][ranks]") {
  for_each_world([](ProcessGroup& group) {
    if (group.size() == 1) return;
    // 128 * 512 is more than f16 holds, on the last rank alone.
    const bool last = group.rank() == group.size() - 1;
    Subject subject(group, last ? 128 : 0.25, {.initial = 1024, .moves = {.interval = 2}});
    const auto optimizer = optim::make_optimizer("sgd", subject.ddp.parameters(), {.lr = 0.5, .momentum = 0});
    const double mean = (128 + 0.25 * (group.size() - 1)) / group.size();
    const Tensor start = subject.value();
    double moved = 0;
    // The scale behind each step: two overflows, two good steps, after which it grows and overflows again.
    const double expected[] = {512, 256, 256, 512, 256, 256};
    for (int i = 0; i < 6; ++i) {
      subject.step(*optimizer);
      const std::string what = str("rank ", group.rank(), ", step ", i + 1);
      require(subject.scale.value() == expected[i], str(what, ": scale ", subject.scale.value()));
      const bool counts = i == 2 || i == 3 || i == 5;
      moved += counts ? 0.5 * mean : 0;
      require(differs(subject.value(), ops::sub(start, ops::full({6}, moved)), 1e-6) == "", what);
    }
    subject.ddp.settle();
    require(subject.ddp.last_skipped_step() == 5, "the newest that was skipped");
    require(subject.scale.state()[1].second.item() == 1, "good steps");
  });
}

TEST_CASE("a scaled loss changes no optimizer's result, nor the norm that gradients are clipped to",
          "[dist][device][loss-scale][ranks]") {
  for_each_world(
      [](ProcessGroup& group) {
        for (const std::string_view name : optim::optimizer_names())
          for (const double clip_norm : {0.0, 0.5}) {
            std::vector<Tensor> ends;
            std::vector<double> norms;
            for (const double initial : {1.0, 4096.0}) {
              Subject subject(group, 0.5 + group.rank(), {.initial = initial}, clip_norm);
              const auto optimizer = optim::make_optimizer(name, subject.ddp.parameters(), {.lr = 0.05});
              for (int i = 0; i < 3; ++i) subject.step(*optimizer);
              ends.push_back(subject.value());
              if (clip_norm > 0) norms.push_back(subject.ddp.grad_norm());
            }
            require(differs(ends[1], ends[0], 1e-6) == "", str(name, ": ", differs(ends[1], ends[0], 1e-6)));
            require(differs(ends[0], ops::full({6}, 1), 1e-4) != "", "it has moved");
            if (clip_norm > 0)
              require(std::abs(norms[1] / norms[0] - 1) < 1e-6, "the norm is that of the gradients");
          }
      },
      {.sizes = {1, 2}});
}

TEST_CASE("a loss scale needs a positive beginning and a loss of one f32", "[dist][loss-scale][error]") {
  const auto with = [](double initial) {
    optim::FlatParameters parameters({{"p", Variable::parameter(Tensor::zeros({2}))}});
    const optim::LossScale scale(parameters, {.initial = initial});
    static_cast<void>(scale.backward_of(parameters.at(0).variable));
  };
  REQUIRE_THROWS_WITH(with(0), ContainsSubstring("positive number; got 0"));
  REQUIRE_THROWS_WITH(with(2), ContainsSubstring("a loss of one f32; got f32 [2]"));
}
