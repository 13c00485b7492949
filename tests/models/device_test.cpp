// SPDX-License-Identifier: MIT
// tests/models/device_test.cpp - whole models on a device train as they do on the CPU. Hidden: see docs/gpu.md, Tests.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "models/mlp.h"
#include "nn/optim/sgd.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

Tensor labels(std::int64_t count, std::int64_t classes) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int64_t>(i * 7 + 3) % classes;
  return Tensor::from(out, {count});
}

using Step = std::function<Variable(nn::Module& model, Device device, std::uint64_t step)>;

/// Losses of `steps` steps of a model made from seed 1 and moved to `device`.
std::vector<double> losses(Device device, std::unique_ptr<nn::Module> model, int steps, const Step& loss_of) {
  model->to(device);
  optim::FlatParameters parameters(model->named_parameters());
  optim::Sgd optimizer(parameters, 0.05, {.momentum = 0.9, .weight_decay = 1e-3});
  std::vector<double> out;
  for (int step = 0; step < steps; ++step) {
    const Variable loss = loss_of(*model, device, static_cast<std::uint64_t>(step));
    REQUIRE(loss.value().device() == device);
    parameters.zero_grad();
    backward(loss);
    optimizer.step();
    out.push_back(loss.item());
  }
  return out;
}

/// Largest difference between the CPU's losses and the device's.
double worst(const std::function<std::unique_ptr<nn::Module>()>& make, int steps, const Step& loss_of) {
  std::vector<double> on[2];
  for (const bool there : {false, true}) {
    default_generator() = {.seed = 1};
    on[there] = losses(there ? test::test_device() : Device{}, make(), steps, loss_of);
  }
  double out = 0;
  for (std::size_t i = 0; i < on[0].size(); ++i) out = std::max(out, std::abs(on[0][i] - on[1][i]));
  CAPTURE(on[0], on[1]);
  CHECK(std::abs(on[0].front() - on[0].back()) > 100 * out);  // It learns by far more than they differ.
  return out;
}

}  // namespace

TEST_CASE("an Mlp on a device trains with the losses of the CPU", "[models][.cuda][mlp]") {
  const auto make = [] {
    return std::make_unique<models::Mlp>(models::MlpOptions{.inputs = 48, .hidden = {32, 16}});
  };
  const double difference = worst(make, 20, [](nn::Module& model, Device device, std::uint64_t) {
    const Tensor x = test::random({20, 3, 4, 4}, 5);
    return cross_entropy(model(x.to(device)), labels(20, 10).to(device));
  });
  REQUIRE(difference < 1e-4);  // Sums in another order, and products fused with additions.
}
