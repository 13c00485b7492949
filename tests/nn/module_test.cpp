// SPDX-License-Identifier: MIT
// tests/nn/module_test.cpp - names of parameters and buffers, sharing, and switching modes.
#include "nn/module.h"

#include "autograd/engine.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "kernels/ops.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

template <class Named>
std::vector<std::string> names(const std::vector<Named>& entries) {
  std::vector<std::string> out;
  for (const Named& entry : entries) out.push_back(entry.name);
  return out;
}
using Names = std::vector<std::string>;

/// Two Linears that hold one weight.
class Tied : public nn::Module {
 public:
  Tied() : first_(4, 4), second_(first_.weight, Variable::parameter(test::random({4}, 3))) {
    register_module("first", first_);
    register_module("second", second_);
  }
  Variable forward(const Variable& x) override { return second_(relu(first_(x))); }
  nn::Linear first_, second_;
};

/// Registers whatever a test asks for.
class Loose : public nn::Module {
 public:
  Variable forward(const Variable& x) override { return x; }
  using nn::Module::register_buffer;
  using nn::Module::register_module;
  using nn::Module::register_parameter;
};

}  // namespace

TEST_CASE("names are dotted paths, own before children's, in order of registration", "[nn][module]") {
  nn::Sequential model;
  model.emplace<nn::Linear>(3, 4);
  model.add("norm", std::make_unique<nn::BatchNorm2d>(4));
  auto& inner = model.emplace<nn::Sequential>();
  inner.emplace<nn::ReLU>();
  inner.emplace<nn::Linear>(4, 2, nn::LinearOptions{.bias = false});

  REQUIRE(names(model.named_parameters()) ==
          Names{"0.weight", "0.bias", "norm.weight", "norm.bias", "2.1.weight"});
  REQUIRE(names(model.named_buffers()) ==
          Names{"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"});
  REQUIRE(names(model.named_tensors()) == Names{"0.weight", "0.bias", "norm.weight", "norm.bias",
                                                "norm.running_mean", "norm.running_var",
                                                "norm.num_batches_tracked", "2.1.weight"});
  REQUIRE(count_parameters(model) == 12 + 4 + 4 + 4 + 8);
}

TEST_CASE("a parameter that two modules hold appears once, under its first name", "[nn][module]") {
  const Tied model;
  REQUIRE(names(model.named_parameters()) == Names{"first.weight", "first.bias", "second.bias"});
  REQUIRE(names(model.named_parameters_with_aliases()) ==
          Names{"first.weight", "first.bias", "second.weight", "second.bias"});
  REQUIRE(count_parameters(model) == 16 + 4 + 4);
}

TEST_CASE("the gradient of a shared parameter is the sum over its uses, and its hook fires once",
          "[nn][module]") {
  // The same numbers in two separate weights give the two parts of the sum.
  Tied tied;
  nn::Linear first(4, 4), second(4, 4);
  for (const auto& [copy, original] :
       {std::pair{first.weight, tied.first_.weight}, std::pair{first.bias, tied.first_.bias},
        std::pair{second.weight, tied.second_.weight}, std::pair{second.bias, tied.second_.bias}}) {
    Tensor target = copy.value();
    ops::copy_(target, original.value());
  }
  int fired = 0;
  Variable shared = tied.first_.weight;
  shared.register_post_accumulate_hook([&](Variable&) { ++fired; });

  const Tensor x = test::random({5, 4}, 1);
  backward(sum(tied(x)));
  backward(sum(second(relu(first(x)))));
  REQUIRE(fired == 1);
  REQUIRE(test::differs(shared.grad(), ops::add(first.weight.grad(), second.weight.grad()), 1e-5, 1e-6) ==
          "");
}

TEST_CASE("a layer applied twice in one forward gets the sum of both uses, once", "[nn][module]") {
  nn::Linear layer(4, 4);
  nn::Linear a(4, 4), b(4, 4);
  for (nn::Linear* copy : {&a, &b}) {
    Tensor weight = copy->weight.value(), bias = copy->bias.value();
    ops::copy_(weight, layer.weight.value());
    ops::copy_(bias, layer.bias.value());
  }
  int fired = 0;
  Variable weight = layer.weight;
  weight.register_post_accumulate_hook([&](Variable&) { ++fired; });

  const Tensor x = test::random({5, 4}, 1);
  backward(sum(layer(relu(layer(x)))));
  backward(sum(b(relu(a(x)))));
  REQUIRE(fired == 1);
  REQUIRE(test::differs(weight.grad(), ops::add(a.weight.grad(), b.weight.grad()), 1e-5, 1e-6) == "");
}

TEST_CASE("train and eval reach all children", "[nn][module]") {
  nn::Sequential model;
  auto& inner = model.emplace<nn::Sequential>();
  auto& dropout = inner.emplace<nn::Dropout>(0.5);
  REQUIRE(dropout.training());
  model.eval();
  REQUIRE_FALSE(model.training());
  REQUIRE_FALSE(dropout.training());
  REQUIRE_FALSE(model.emplace<nn::Dropout>(0.5).training());  // A late child follows its parent.
  model.train();
  REQUIRE(dropout.training());
}

TEST_CASE("zero_grad makes gradients absent", "[nn][module]") {
  nn::Linear model(2, 2);
  backward(sum(model(test::random({3, 2}, 1))));
  REQUIRE(model.weight.grad().defined());
  model.zero_grad();
  REQUIRE_FALSE(model.weight.grad().defined());
  REQUIRE_FALSE(model.bias.grad().defined());
}

TEST_CASE("a name must be new and without dots", "[nn][module][error]") {
  Loose module, child;
  module.register_parameter("w", Variable::parameter(Tensor::zeros({1})));
  module.register_buffer("b", Tensor::zeros({1}));
  module.register_module("m", child);
  CHECK_THROWS_WITH(module.register_parameter("w", Variable::parameter(Tensor::zeros({1}))),
                    ContainsSubstring("register_parameter: the name \"w\" is taken"));
  CHECK_THROWS_WITH(module.register_buffer("b", Tensor::zeros({1})), ContainsSubstring("\"b\" is taken"));
  CHECK_THROWS_WITH(module.register_module("m", child), ContainsSubstring("\"m\" is taken"));
  CHECK_THROWS_WITH(module.register_module("a.b", child), ContainsSubstring("without dots; got \"a.b\""));
  CHECK_THROWS_WITH(module.register_parameter("", Variable::parameter(Tensor::zeros({1}))),
                    ContainsSubstring("non-empty"));
  CHECK_THROWS_WITH(module.register_parameter("u", Variable()), ContainsSubstring("\"u\" must be a leaf"));
}
