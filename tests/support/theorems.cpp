// SPDX-License-Identifier: MIT
// tests/support/theorems.cpp - see the header.
#include "tests/support/theorems.h"

#include <utility>

#include "autograd/engine.h"
#include "nn/optim/sgd.h"
#include "tests/support/training.h"

namespace brigade::test {
namespace {

constexpr int kSteps = 4;

// Rank `rank` of `size` trains `model`, whose flat parameters are `parameters`.
void train_steps(const Subject& subject, nn::Module& model, optim::FlatParameters& parameters, int rank,
                 int size, const std::function<void(const nn::Module&)>& after_step) {
  optim::Sgd optimizer(parameters, 0.1, {.momentum = 0.9, .weight_decay = 1e-3});
  for (int step = 0; step < kSteps; ++step) {
    parameters.zero_grad();
    const ToyBatch batch =
        toy_batch(subject.features, kGlobalBatch, rank, size, static_cast<std::uint64_t>(step));
    backward(toy_loss(model, batch));
    optimizer.step();
    if (after_step) after_step(model);
  }
}

std::unique_ptr<nn::Module> make_model(const Subject& subject, Device device) {
  auto model = subject.make(7);
  model->to(device);
  return model;
}

}  // namespace

std::span<const Subject> subjects() {
  static const Subject all[] = {{"mlp", toy_mlp, {16}}, {"cnn", toy_cnn, {3, 8, 8}}};
  return all;
}

Synchronise with_ddp(dist::DdpOptions options) {
  return [options = std::move(options)](const nn::Module& model, dist::ProcessGroup& group) {
    auto ddp = std::make_shared<dist::Ddp>(model.named_parameters(), model.named_buffers(), group, options);
    optim::FlatParameters* const parameters = &ddp->parameters();
    return Synchronised{std::move(ddp), parameters};
  };
}

std::vector<Tensor> train(const Subject& subject, dist::ProcessGroup& group, const Synchronise& synchronise,
                          const std::function<void(const nn::Module&)>& after_step) {
  const auto model = make_model(subject, group.device());
  const Synchronised synchronised = synchronise(*model, group);
  train_steps(subject, *model, *synchronised.parameters, group.rank(), group.size(), after_step);
  return copy_values(*model);
}

std::vector<Tensor> train_serially(const Subject& subject, Device device) {
  const auto model = make_model(subject, device);
  optim::FlatParameters parameters(model->named_parameters());
  train_steps(subject, *model, parameters, 0, 1, {});
  return copy_values(*model);
}

void require_serial_result(const Subject& subject, dist::ProcessGroup& group, const Synchronise& synchronise,
                           const std::string& what) {
  require_close(train(subject, group, synchronise), train_serially(subject, group.device()), 1e-5,
                what + ": not the result of one rank on the whole batch");
}

void require_equal_ranks(const Subject& subject, dist::ProcessGroup& group, const Synchronise& synchronise,
                         const std::string& what) {
  train(subject, group, synchronise,
        [&](const nn::Module& model) { require_same_on_all_ranks(copy_values(model), group, what); });
}

void require_same_gradient(const Subject& subject, dist::ProcessGroup& group, const Synchronise& synchronise,
                           const Synchronise& reference, bool exact, const std::string& what) {
  const auto expected = train(subject, group, reference), got = train(subject, group, synchronise);
  if (exact)
    require_same(got, expected, what + ": not the bits of the reference");
  else
    require_close(got, expected, 1e-6, what + ": not the result of the reference");
}

}  // namespace brigade::test
