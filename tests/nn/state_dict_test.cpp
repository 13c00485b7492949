// SPDX-License-Identifier: MIT
// tests/nn/state_dict_test.cpp - what a module saves, and what it refuses to load.
#include "nn/state_dict.h"

#include <unistd.h>

#include "kernels/ops.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

std::unique_ptr<nn::Sequential> make_model(std::uint64_t seed) {
  default_generator() = {.seed = seed};
  auto model = std::make_unique<nn::Sequential>();
  model->emplace<nn::Conv2d>(3, 4, 3);
  model->emplace<nn::BatchNorm2d>(4);
  (*model)(test::random({2, 3, 5, 5}, seed));  // Moves the running statistics off their defaults.
  return model;
}

NamedTensors copy_of(const NamedTensors& tensors) {
  NamedTensors out;
  for (const auto& [name, tensor] : tensors) out.emplace_back(name, ops::clone(tensor));
  return out;
}

bool equal(const NamedTensors& a, const NamedTensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].first != b[i].first || test::differs_bitwise(a[i].second, b[i].second) != "") return false;
  return true;
}

}  // namespace

TEST_CASE("a state_dict lists parameters then buffers, module by module, and shares memory",
          "[nn][state_dict]") {
  const auto model = make_model(1);
  const NamedTensors state = nn::state_dict(*model);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  REQUIRE(names == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                            "1.running_var", "1.num_batches_tracked"});
  REQUIRE(state[0].second.same_view(model->named_parameters().at(0).variable.value()));
}

TEST_CASE("a module loads another's state, in memory and through a file", "[nn][state_dict]") {
  const auto from = make_model(1), to = make_model(2), read = make_model(3);
  REQUIRE_FALSE(equal(nn::state_dict(*from), nn::state_dict(*to)));
  nn::load_state_dict(*to, nn::state_dict(*from));
  REQUIRE(equal(nn::state_dict(*from), nn::state_dict(*to)));

  const auto path = std::filesystem::temp_directory_path() / str("brigade-state-dict-", getpid());
  nn::save(*from, path);
  nn::load(*read, path);
  REQUIRE(equal(nn::state_dict(*from), nn::state_dict(*read)));
  nn::Linear other(2, 2);
  REQUIRE_THROWS_WITH(nn::load(other, path),
                      ContainsSubstring(path.string()) && ContainsSubstring("unexpected"));
  std::filesystem::remove(path);
}

TEST_CASE("a load that does not fit names everything that is wrong and changes nothing",
          "[nn][state_dict][error]") {
  const auto model = make_model(1);
  NamedTensors wrong = copy_of(nn::state_dict(*make_model(2)));
  wrong.erase(wrong.begin(), wrong.begin() + 2);        // 0.weight, 0.bias
  wrong.at(0).second = Tensor::zeros({5});              // 1.weight
  wrong.at(2).second = Tensor::zeros({4}, DType::i64);  // 1.running_mean
  wrong.emplace_back("extra.a", Tensor::zeros({1}));
  wrong.emplace_back("1.bias", Tensor::zeros({4}));

  const NamedTensors before = copy_of(nn::state_dict(*model));
  REQUIRE_THROWS_WITH(nn::load_state_dict(*model, wrong),
                      ContainsSubstring("2 missing: 0.weight, 0.bias") &&
                          ContainsSubstring("1 unexpected: extra.a") &&
                          ContainsSubstring("1 repeated: 1.bias") &&
                          ContainsSubstring("2 mismatched: 1.weight") && ContainsSubstring("[4] here") &&
                          ContainsSubstring("[5] given") && ContainsSubstring("1.running_mean"));
  REQUIRE(equal(nn::state_dict(*model), before));
}

TEST_CASE("a load that is not strict reports missing and unexpected names, but no mismatch passes",
          "[nn][state_dict]") {
  const auto model = make_model(1);
  const Tensor bias = Tensor::from<float>({1, 2, 3, 4}, {4});
  const nn::LoadReport report =
      nn::load_state_dict(*model, {{"1.bias", bias}, {"other", bias}}, nn::Strict::no);
  REQUIRE(report.missing.size() == 6);
  REQUIRE(report.unexpected == std::vector<std::string>{"other"});
  REQUIRE(test::values(nn::state_dict(*model).at(3).second) == std::vector<double>{1, 2, 3, 4});
  REQUIRE_THROWS_WITH(nn::load_state_dict(*model, {{"1.bias", Tensor::zeros({1})}}, nn::Strict::no),
                      ContainsSubstring("1 mismatched: 1.bias"));
}

TEST_CASE("loading converts between floating dtypes", "[nn][state_dict]") {
  nn::Linear model(2, 1, {.bias = false});
  nn::load_state_dict(model, {{"weight", Tensor::from<double>({0.5, 0.25}, {1, 2})}});
  REQUIRE(model.weight.dtype() == DType::f32);
  REQUIRE(test::values(model.weight.value()) == std::vector<double>{0.5, 0.25});
}

TEST_CASE("a shared parameter is saved under each of its names", "[nn][state_dict]") {
  nn::Sequential model;
  auto& first = model.emplace<nn::Linear>(2, 2, nn::LinearOptions{.bias = false});
  model.emplace<nn::Linear>(first.weight);
  const NamedTensors state = nn::state_dict(model);
  REQUIRE(state.size() == 2);
  REQUIRE(state[0].second.same_view(state[1].second));
  nn::load_state_dict(model, copy_of(state));
}
