// SPDX-License-Identifier: MIT
// tests/nn/flat_parameters_test.cpp - where parameters and gradients lie.
#include "nn/optim/flat_parameters.h"

#include <cstring>

#include "autograd/engine.h"
#include "autograd/ops/reduce.h"
#include "kernels/ops.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using optim::FlatParameters;
using optim::Range;

namespace {

nn::NamedParameter named(const std::string& name, const Shape& shape, std::uint64_t seed,
                         DType dtype = DType::f32) {
  return {name, Variable::parameter(test::random(shape, seed, dtype))};
}

/// Three f32 parameters of 3, 20 and 16 elements: 64, 128 and 64 bytes with their gaps.
std::vector<nn::NamedParameter> three() {
  return {named("a", {3}, 1), named("b", {4, 5}, 2), named("c", {16}, 3)};
}

/// Gives each parameter its own value as a gradient.
void make_gradients(const std::vector<nn::NamedParameter>& parameters) {
  for (const auto& p : parameters) backward(p.variable, {.gradient = p.variable.value()});
}

std::vector<std::byte> bytes_of(const Tensor& t) {
  std::vector<std::byte> out(static_cast<std::size_t>(t.bytes()));
  std::memcpy(out.data(), t.raw(), out.size());
  return out;
}

}  // namespace

TEST_CASE("parameters keep their values and become aligned views of one run of memory", "[nn][flat]") {
  auto parameters = three();
  std::vector<Tensor> before;
  for (const auto& p : parameters) before.push_back(ops::clone(p.variable.value()));
  FlatParameters flat(parameters);

  const std::byte* start = flat.values(flat.all()).raw();
  for (int i = 0; i < flat.count(); ++i) {
    const Variable& v = flat.at(i).variable;
    CHECK(v == parameters[static_cast<std::size_t>(flat.index_at(i))].variable);
    CHECK(test::differs_bitwise(v.value(), before[static_cast<std::size_t>(flat.index_at(i))]) == "");
    CHECK((v.value().raw() - start) % kAlignment == 0);
    CHECK(v.value().raw() - start == flat.bytes({0, i}));
    CHECK(v.grad_memory().raw() - flat.gradients(flat.all()).raw() == flat.bytes({0, i}));
    CHECK(flat.position_of(v) == i);
  }
  REQUIRE(flat.bytes(flat.all()) == 64 + 128 + 64);
  REQUIRE(flat.values({1, 3}).raw() == flat.at(1).variable.value().raw());
  REQUIRE(flat.values({1, 3}).shape() == Shape{(128 + 64) / 4});
}

TEST_CASE("gradients go where the caller wants them", "[nn][flat]") {
  Storage memory;
  FlatParameters flat(three(), {}, [&](std::int64_t bytes) { return memory = Storage(Device{}, bytes); });
  REQUIRE(memory.bytes() == flat.bytes(flat.all()));
  REQUIRE(flat.gradients(flat.all()).raw() == memory.data());
}

TEST_CASE("the default order is the reverse of registration, and another can be given", "[nn][flat]") {
  const auto order = [](const FlatParameters& flat) {
    std::string out;
    for (int i = 0; i < flat.count(); ++i) out += flat.at(i).name;
    return out;
  };
  REQUIRE(order(FlatParameters(three())) == "cba");
  FlatParameters chosen(three(), {1, 2, 0});
  REQUIRE(order(chosen) == "bca");
  REQUIRE(chosen.in_registration_order() == std::vector<int>{2, 0, 1});
}

TEST_CASE("backward writes straight into the flat gradients, and gaps stay zero", "[nn][flat]") {
  auto parameters = three();
  FlatParameters flat(parameters);
  make_gradients(parameters);
  const Tensor values = flat.values(flat.all()), gradients = flat.gradients(flat.all());
  REQUIRE(test::differs_bitwise(gradients, values) == "");
  for (int i = 0; i < flat.count(); ++i) {
    const auto n = flat.at(i).variable.numel(), begin = flat.bytes({0, i}) / 4,
               end = flat.bytes({0, i + 1}) / 4;
    for (std::int64_t at = begin + n; at < end; ++at) REQUIRE(gradients.data<float>()[at] == 0);
  }
}

TEST_CASE("a flat write is seen through the parameter, and the reverse", "[nn][flat]") {
  auto parameters = three();
  FlatParameters flat(parameters);
  Tensor c = flat.values({0, 1});
  ops::fill_(c, 7);
  REQUIRE(test::values(parameters[2].variable.value()) == std::vector<double>(16, 7));
  Tensor value = parameters[1].variable.value();
  ops::fill_(value, 8);
  REQUIRE(flat.values({1, 2}).data<float>()[19] == 8);
  REQUIRE(flat.values({1, 2}).data<float>()[20] == 0);
}

TEST_CASE("zero_grad makes gradients absent without moving their memory", "[nn][flat]") {
  auto parameters = three();
  FlatParameters flat(parameters);
  make_gradients(parameters);
  const std::byte* memory = parameters[0].variable.grad().raw();
  flat.zero_grad();
  REQUIRE_FALSE(parameters[0].variable.grad().defined());
  REQUIRE(parameters[0].variable.grad_memory().raw() == memory);
  make_gradients(parameters);
  REQUIRE(parameters[0].variable.grad().raw() == memory);
  REQUIRE(test::differs_bitwise(parameters[0].variable.grad(), parameters[0].variable.value()) == "");
}

TEST_CASE("clear_absent zeroes only the gradients that are not there", "[nn][flat]") {
  auto parameters = three();
  FlatParameters flat(parameters);
  make_gradients(parameters);
  parameters[1].variable.zero_grad();
  flat.clear_absent(flat.all());
  REQUIRE(test::values(parameters[1].variable.grad_memory()) == std::vector<double>(20, 0));
  REQUIRE_FALSE(parameters[1].variable.grad().defined());
  REQUIRE(test::differs_bitwise(parameters[0].variable.grad(), parameters[0].variable.value()) == "");
}

TEST_CASE("runs end where a gradient is absent, the key or the dtype changes", "[nn][flat]") {
  std::vector<nn::NamedParameter> parameters{named("a", {1}, 1), named("b", {1}, 2), named("c", {1}, 3),
                                             named("d", {1}, 4, DType::f64), named("e", {1}, 5, DType::f64)};
  FlatParameters flat(parameters, {0, 1, 2, 3, 4});
  make_gradients(parameters);
  const auto runs = [&](Range range, const auto& key) {
    std::string out;
    flat.for_each_run(range, key, [&](Range run) { out += str(run.begin, "-", run.end, " "); });
    return out;
  };
  const auto same = [](int) { return 0; };
  CHECK(runs(flat.all(), same) == "0-3 3-5 ");
  CHECK(runs({1, 4}, same) == "1-3 3-4 ");
  CHECK(runs(flat.all(), [](int i) { return i < 1; }) == "0-1 1-3 3-5 ");
  parameters[1].variable.zero_grad();
  CHECK(runs(flat.all(), same) == "0-1 2-3 3-5 ");
  CHECK(runs({1, 2}, same) == "");
  CHECK(flat.dtype({3, 5}) == DType::f64);
  CHECK_THROWS_WITH(flat.dtype({2, 4}), ContainsSubstring("one dtype; got \"c\" f32, \"d\" f64"));
}

TEST_CASE("frozen parameters are left alone", "[nn][flat]") {
  auto parameters = three();
  parameters[1].variable.set_requires_grad(false);
  const std::byte* memory = parameters[1].variable.value().raw();
  FlatParameters flat(parameters);
  REQUIRE(flat.count() == 2);
  REQUIRE(flat.index_at(0) == 2);
  REQUIRE(flat.index_at(1) == 0);
  REQUIRE(flat.position_of(parameters[1].variable) == -1);
  REQUIRE(parameters[1].variable.value().raw() == memory);
}

TEST_CASE("a parameter that two modules hold has one place", "[nn][flat]") {
  nn::Sequential model;
  auto& first = model.emplace<nn::Linear>(4, 4);
  auto& second = model.emplace<nn::Linear>(first.weight, Variable::parameter(Tensor::zeros({4})));
  FlatParameters flat(model.named_parameters());
  REQUIRE(flat.count() == 3);
  REQUIRE(first.weight.value().raw() == second.weight.value().raw());
  REQUIRE_THROWS_WITH(FlatParameters(model.named_parameters_with_aliases()),
                      ContainsSubstring("each parameter once; got one as \"0.weight\" and \"1.weight\""));
}

TEST_CASE("buffers have the layout of the parameters and start at zero", "[nn][flat]") {
  auto parameters = three();
  FlatParameters flat(parameters);
  const optim::FlatBuffer buffer = flat.make_buffer();
  REQUIRE(bytes_of(buffer.view(flat, flat.all())) == std::vector<std::byte>(256));
  REQUIRE(buffer.at(flat, 1).shape() == Shape{4, 5});
  REQUIRE(buffer.at(flat, 1).raw() - buffer.view(flat, flat.all()).raw() == flat.bytes({0, 1}));
}

TEST_CASE("parameters that cannot lie flat are refused", "[nn][flat][error]") {
  CHECK_THROWS_WITH(FlatParameters(three(), {0, 1}),
                    ContainsSubstring("each of the 3 trainable parameters once"));
  CHECK_THROWS_WITH(FlatParameters(three(), {0, 1, 1}), ContainsSubstring("each of the 3"));
  CHECK_THROWS_WITH(FlatParameters({{"u", Variable()}}), ContainsSubstring("\"u\" is undefined"));
  FlatParameters flat(three());
  CHECK_THROWS_WITH(flat.bytes({1, 4}), ContainsSubstring("range must lie in [0, 3); got [1, 4)"));
  CHECK(FlatParameters({}).count() == 0);
}
