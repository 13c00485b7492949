// SPDX-License-Identifier: MIT
// tests/models/mlp_test.cpp - the smallest model learns.
#include "models/mlp.h"

#include "autograd/engine.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/shape_ops.h"
#include "core/rng.h"
#include "nn/linear.h"
#include "nn/optim/sgd.h"
#include "nn/state_dict.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using models::Mlp;

TEST_CASE("an Mlp flattens images and names its layers", "[models][mlp]") {
  Mlp model({.inputs = 12, .hidden = {5}, .classes = 4});
  const Variable logits = model(test::random({2, 3, 2, 2}, 1));
  REQUIRE(logits.shape() == Shape{2, 4});
  const auto parameters = model.named_parameters();
  REQUIRE(parameters.size() == 4);
  REQUIRE(parameters[0].name == "layers.0.weight");
  REQUIRE(parameters[3].name == "layers.2.bias");
  REQUIRE_THROWS_WITH(model(test::random({2, 13}, 1)),
                      ContainsSubstring("12 elements an image; got [2, 13]"));
}

TEST_CASE("an Mlp trains with the bits of its layers called one by one", "[models][mlp]") {
  // No layer takes the one behind it along here.
  struct Apart final : nn::Module {
    explicit Apart(DType precision) : precision_(precision) {
      for (const auto& [in, out] : {std::pair{16, 33}, {33, 12}, {12, 10}}) {
        if (layers_.size() > 0) layers_.emplace<nn::ReLU>();
        layers_.emplace<nn::Linear>(in, out);
      }
      register_module("layers", layers_);
    }
    Variable forward(const Variable& x) override {
      Variable y = cast(x, precision_);
      for (int i = 0; i < layers_.size(); ++i) y = layers_[i](y);
      return cast(y, DType::f32);
    }
    DType precision_;
    nn::Sequential layers_;
  };
  const auto train = [](nn::Module& model) {
    optim::FlatParameters parameters(model.named_parameters());
    optim::Sgd optimizer(parameters, 0.1, {.momentum = 0.9});
    const Tensor labels = Tensor::from(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}, {7});
    for (std::uint64_t step = 0; step < 5; ++step) {
      const Variable loss = cross_entropy(model(test::random({7, 16}, step)), labels);
      parameters.zero_grad();
      backward(loss);
      optimizer.step();
    }
  };
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(name(precision));
    default_generator() = {.seed = 1};
    Mlp fused({.inputs = 16, .hidden = {33, 12}, .precision = precision});
    default_generator() = {.seed = 1};
    Apart apart(precision);
    const auto got = fused.named_parameters(), expected = apart.named_parameters();
    REQUIRE(got.size() == expected.size());
    train(fused);
    train(apart);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].name == expected[i].name);
      CHECK(test::differs_bitwise(got[i].variable.value(), expected[i].variable.value()) == "");
    }
  }
}

TEST_CASE("an Mlp learns its labels in every precision, checkpointed or not", "[models][mlp]") {
  for (const DType precision : {DType::f32, DType::bf16})
    for (const bool checkpointed : {false, true}) {
      default_generator() = {.seed = 1};
      Mlp model(
          {.inputs = 16, .hidden = {32}, .precision = precision, .checkpoint_activations = checkpointed});
      optim::FlatParameters parameters(model.named_parameters());
      optim::Sgd optimizer(parameters, 0.1, {.momentum = 0.9});
      const Tensor x = test::random({20, 16}, 2);
      std::vector<std::int64_t> labels(20);
      for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i % 10);
      const Tensor y = Tensor::from(labels, {20});
      double first = 0, last = 0;
      for (int step = 0; step < 60; ++step) {
        const Variable loss = cross_entropy(model(x), y);
        parameters.zero_grad();
        backward(loss);
        optimizer.step();
        (step == 0 ? first : last) = loss.item();
      }
      CAPTURE(name(precision), checkpointed);
      CHECK(first > 2);
      CHECK(last < 0.1);
    }
}
