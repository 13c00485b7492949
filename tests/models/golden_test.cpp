// SPDX-License-Identifier: MIT
// tests/models/golden_test.cpp - ten steps of ResNet-18 against PyTorch's, from the committed
// numbers that scripts/make_golden.py wrote.
#include <cmath>

#include "core/safetensors.h"
#include "kernels/ops.h"
#include "tests/parity/recipe.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

TEST_CASE("ten SGD steps of ResNet-18 end where PyTorch's do", "[models][parity]") {
  constexpr std::int64_t kSampleEvery = 499;  // As in scripts/make_golden.py.
  const SafetensorsFile golden = load_safetensors(std::filesystem::path(BRIGADE_SOURCE_DIR) /
                                                  "tests/models/golden/resnet18_10_steps.safetensors");
  const auto expected = [&](const std::string& name) {
    for (const auto& [key, tensor] : golden.tensors)
      if (key == name) return test::values(tensor);
    FAIL("the golden file has no " << name);
    return std::vector<double>();
  };

  const auto model = test::parity::make_model();
  std::vector<Tensor> initial;
  for (const Variable& parameter : model->parameters()) initial.push_back(ops::clone(parameter.value()));
  const std::vector<double> losses = test::parity::train(*model);
  const std::vector<double> golden_losses = expected("losses");
  REQUIRE(losses.size() == golden_losses.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    CAPTURE(step);
    CHECK_THAT(losses[step], Catch::Matchers::WithinRel(golden_losses[step], 1e-3));
  }

  const std::vector<double> norms = expected("norms"), samples = expected("samples");
  std::size_t index = 0, sample = 0;
  std::int64_t at = 0;                           // Of the parameter's first element among all elements.
  double difference = 0, total = 0, change = 0;  // Sums of squares.
  for (const auto& [name, variable] : model->named_parameters()) {
    CAPTURE(name);
    const float* start = initial.at(index).data<float>();
    CHECK_THAT(std::sqrt(ops::sum_of_squares(variable.value())),
               Catch::Matchers::WithinRel(norms.at(index++), 1e-3));
    const float* values = variable.value().data<float>();
    for (; static_cast<std::int64_t>(sample) * kSampleEvery < at + variable.numel(); ++sample) {
      const std::int64_t i = static_cast<std::int64_t>(sample) * kSampleEvery - at;
      difference += std::pow(values[i] - samples.at(sample), 2);
      total += std::pow(samples.at(sample), 2);
      change += std::pow(samples.at(sample) - start[i], 2);
    }
    at += variable.numel();
  }
  CHECK(sample == samples.size());
  CHECK(std::sqrt(difference / total) < 1e-3);
  // Sharper: of what ten steps changed, 5 % at most may be another's.
  CHECK(std::sqrt(difference / change) < 0.05);
}
