// SPDX-License-Identifier: MIT
// tests/support/training.cpp - see the header.
#include "tests/support/training.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops/loss.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "kernels/ops.h"
#include "nn/activations.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/pooling.h"
#include "nn/sequential.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace brigade::test {

std::unique_ptr<nn::Module> toy_mlp(std::uint64_t seed) {
  default_generator() = {.seed = seed};
  auto model = std::make_unique<nn::Sequential>();
  model->emplace<nn::Linear>(16, 32);
  model->emplace<nn::ReLU>();
  model->emplace<nn::Linear>(32, 10);
  return model;
}

std::unique_ptr<nn::Module> toy_cnn(std::uint64_t seed) {
  default_generator() = {.seed = seed};
  auto model = std::make_unique<nn::Sequential>();
  model->emplace<nn::Conv2d>(3, 8, 3, nn::Conv2dOptions{.padding = 1});
  model->emplace<nn::ReLU>();
  model->emplace<nn::Conv2d>(8, 16, 3, nn::Conv2dOptions{.stride = 2, .padding = 1, .bias = false});
  model->emplace<nn::ReLU>();
  model->emplace<nn::AdaptiveAvgPool2d>(1);
  model->emplace<nn::Flatten>();
  model->emplace<nn::Linear>(16, 10);
  return model;
}

ToyBatch toy_batch(const Shape& features, std::int64_t global_size, int rank, int size, std::uint64_t seed) {
  Shape shape = features;
  shape.insert(0, global_size);
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < global_size; ++i)
    labels.push_back(static_cast<std::int64_t>(philox(seed, 1, static_cast<std::uint64_t>(i))[0] % 10));
  const std::int64_t share = global_size / size;
  return {ops::clone(random(shape, seed).slice(0, rank * share, (rank + 1) * share)),
          ops::clone(Tensor::from(labels, {global_size}).slice(0, rank * share, (rank + 1) * share))};
}

Variable toy_loss(nn::Module& model, const ToyBatch& batch) {
  const Device device = model.parameters().front().value().device();
  return cross_entropy(model(batch.inputs.to(device)), batch.labels.to(device));
}

std::vector<Tensor> copy_values(const nn::Module& model) {
  std::vector<Tensor> out;
  for (const Variable& p : model.parameters()) out.push_back(ops::clone(p.value()).to(Device{}));
  return out;
}

std::vector<Tensor> copy_gradients(const nn::Module& model) {
  std::vector<Tensor> out;
  for (const auto& p : model.named_parameters()) {
    BRIGADE_CHECK(p.variable.grad().defined(), "no gradient for ", p.name);
    out.push_back(ops::clone(p.variable.grad()).to(Device{}));
  }
  return out;
}

void require_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const std::string& message) {
  require(a.size() == b.size(), message + ": different numbers of tensors");
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::string difference = differs_bitwise(a[i], b[i]);
    require(difference.empty(), str(message, ": tensor ", i, ": ", difference));
  }
}

void require_close(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double relative,
                   const std::string& message) {
  require(a.size() == b.size(), message + ": different numbers of tensors");
  for (std::size_t i = 0; i < a.size(); ++i) {
    double largest = 0;
    for (const double value : values(b[i])) largest = std::max(largest, std::abs(value));
    const std::string difference = differs(a[i], b[i], 0, relative * largest);
    require(difference.empty(), str(message, ": tensor ", i, ": ", difference));
  }
}

void require_same_on_all_ranks(const std::vector<Tensor>& tensors, dist::ProcessGroup& group,
                               const std::string& message) {
  Sha256 sha;
  for (const Tensor& t : tensors) sha.update(t);
  const std::string mine = sha.hex();
  for (const std::string& other : group.all_gather_text(mine))
    require(other == mine, message + ": ranks hold different bits");
}

}  // namespace brigade::test
