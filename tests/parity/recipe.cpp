// SPDX-License-Identifier: MIT
// tests/parity/recipe.cpp - initial values, batches and steps; keep in step with tests/parity/oracle.py.
#include "tests/parity/recipe.h"

#include <cmath>

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "kernels/ops.h"
#include "nn/optim/sgd.h"

namespace brigade::test::parity {

namespace {

constexpr std::uint64_t kSeed = 20240607;
constexpr std::int64_t kBatch = 8;
constexpr std::uint64_t kInputStream = 1000, kLabelStream = 2000;  // Plus the step; below: parameters.

void fill(const nn::NamedParameter& parameter, std::uint64_t index) {
  Tensor value = parameter.variable.value();
  double mean = 0, std = 0.1;
  if (value.dims() == 4)
    std = std::sqrt(2.0 / static_cast<double>(value.size(0) * value.size(2) * value.size(3)));
  else if (value.dims() == 2)
    std = 0.02;
  else
    mean = parameter.name.ends_with("weight") ? 1 : 0;
  Generator generator{.seed = kSeed, .next_stream = index};
  ops::normal_(value, generator, mean, std);
}

}  // namespace

std::unique_ptr<models::ResNet> make_model() {
  auto model = std::make_unique<models::ResNet>();
  std::uint64_t index = 0;
  for (const nn::NamedParameter& parameter : model->named_parameters()) fill(parameter, index++);
  return model;
}

Batch batch(int step) {
  const auto number = static_cast<std::uint64_t>(step);
  Batch out{Tensor::empty({kBatch, 3, 32, 32}), Tensor::empty({kBatch}, DType::i64)};
  Generator generator{.seed = kSeed, .next_stream = kInputStream + number};
  ops::normal_(out.images, generator, 0, 1);
  for (std::int64_t i = 0; i < kBatch; ++i)
    out.labels.data<std::int64_t>()[i] = static_cast<std::int64_t>(
        10 * static_cast<double>(uniform_at(kSeed, kLabelStream + number, static_cast<std::uint64_t>(i))));
  return out;
}

std::vector<double> train(models::ResNet& model) {
  optim::FlatParameters parameters(model.named_parameters());
  optim::Sgd optimizer(parameters, 0.0005, {.momentum = 0.9, .weight_decay = 5e-4});
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const Batch b = batch(step);
    const Variable loss = cross_entropy(model(b.images), b.labels);
    parameters.zero_grad();
    backward(loss);
    optimizer.step();
    losses.push_back(loss.item());
  }
  return losses;
}

}  // namespace brigade::test::parity
