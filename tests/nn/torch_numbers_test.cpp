// SPDX-License-Identifier: MIT
// tests/nn/torch_numbers_test.cpp - small results that PyTorch 1.13.1 gives in f64, copied here: our formulas elsewhere
// are our reading of its documentation, these are its word.
#include <functional>

#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/reduce.h"
#include "kernels/ops.h"
#include "nn/layer_norm.h"
#include "nn/optim/adamw.h"
#include "nn/optim/clip.h"
#include "nn/optim/sgd.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using Numbers = std::vector<double>;

namespace {

Tensor of(const Numbers& values, const Shape& shape) { return Tensor::from(values, shape); }

// Constants of optimizers are floats, a float has 24 bits.
constexpr double kFloat = 1e-6;

using Make = std::function<std::unique_ptr<optim::Optimizer>(optim::FlatParameters&)>;

/// Three steps from [0.5, -1, 2, 0.25] with fixed gradients.
Tensor after_three_steps(const Make& make) {
  const std::vector<Numbers> gradients{{0.1, -0.2, 0.3, 1}, {-0.4, 0.5, 0, 2}, {0.25, 0.25, -1.5, -3}};
  const Variable p = Variable::parameter(of({0.5, -1, 2, 0.25}, {4}));
  optim::FlatParameters flat({{"p", p}});
  const auto optimizer = make(flat);
  for (const Numbers& gradient : gradients) {
    flat.zero_grad();
    backward(p, {.gradient = of(gradient, {4})});
    optimizer->step();
  }
  return p.value();
}

Make sgd(const optim::SgdOptions& options) {
  return [options](optim::FlatParameters& flat) { return std::make_unique<optim::Sgd>(flat, 0.1, options); };
}

}  // namespace

TEST_CASE("SGD and AdamW end where PyTorch's do", "[nn][optim][parity]") {
  const auto check = [](const Make& make, const Numbers& expected) {
    CHECK(test::differs(after_three_steps(make), of(expected, {4}), kFloat) == "");
  };
  check(sgd({}), {0.505, -1.055, 2.12, 0.25});
  check(sgd({.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.05}),
        {0.49682422187499997, -1.00632194375, 1.97685601, -0.08108655281250002});
  check(sgd({.momentum = 0.9, .weight_decay = 0.05, .nesterov = true}),
        {0.5063521065625001, -1.074445713125, 2.103573241, -0.06713268684375005});
  check(
      [](optim::FlatParameters& flat) {
        return std::make_unique<optim::Adamw>(
            flat, 0.05, optim::AdamwOptions{.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1});
      },
      {0.47347415041529983, -0.9911882552709205, 1.9186188008795941, 0.15530034669652432});
}

TEST_CASE("cross entropy with smoothing and an ignored row is PyTorch's", "[nn][parity]") {
  const Variable x = Variable::parameter(of({1, 2, -1, 0.5, 0, 3, 2, 2, 2}, {3, 3}));
  const Variable loss =
      cross_entropy(x, Tensor::from<std::int64_t>({1, -100, 0}, {3}), {.label_smoothing = 0.1});
  backward(loss);
  CHECK_THAT(loss.item(), Catch::Matchers::WithinRel(0.7904789193848147, 1e-9));
  CHECK(test::differs(
            x.grad(),
            of({0.1130815635045429, -0.11397441031754607, 0.0008928468130031987, 0, 0, 0, -0.3, 0.15, 0.15},
               {3, 3}),
            1e-9, 1e-12) == "");
}

TEST_CASE("LayerNorm and its gradient are PyTorch's", "[nn][parity]") {
  const Variable x = Variable::parameter(Tensor::from<float>({0, 1, 2, 3, 4, 5}, {2, 3}));
  nn::LayerNorm layer(3);  // Its parameters are f32: so are the rest here, and the tolerances.
  const Variable y = layer(x * x);
  backward(sum(y * Variable(Tensor::from<float>({1, 2, 3, 4, 5, 7}, {2, 3}))));
  CHECK(test::differs(y.value(),
                      of({-0.9805789785364644, -0.39223159141458575, 1.3728105699510502, -1.1706690402094089,
                          -0.10179730784429664, 1.272466348053705},
                         {2, 3}),
                      1e-5) == "");
  CHECK(test::differs(x.grad(),
                      of({0, 0.3620586772565044, -0.1810211923080125, 0.10680774643303126,
                          -0.25317468754361006, 0.1384554487077938},
                         {2, 3}),
                      1e-5, 1e-5) == "");
}

TEST_CASE("clipping is PyTorch's clip_grad_norm_", "[nn][clip][parity]") {
  const Variable p = Variable::parameter(of({3, 4}, {2}));
  optim::FlatParameters flat({{"p", p}});
  backward(p, {.gradient = of({6, 8}, {2})});
  CHECK(optim::clip_grad_norm(flat, 5) == 10);
  CHECK(test::differs(p.grad(), of({2.999999761581421, 3.999999761581421}, {2}), 2e-7) == "");
}
