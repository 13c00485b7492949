// SPDX-License-Identifier: MIT
// tests/nn/device_test.cpp - modules move to a device and back. Hidden: see docs/gpu.md, Tests.

#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "nn/optim/flat_parameters.h"
#include "nn/sequential.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using test::test_device;

TEST_CASE("a module that moves keeps its variables, and all who hold its tensors see the move",
          "[nn][.cuda]") {
  nn::Linear layer(3, 4);
  const Variable weight = layer.parameters()[0];
  const Tensor value = weight.value();
  const std::vector<float> before = value.to_vector<float>();
  layer.to(test_device());
  REQUIRE(layer.parameters()[0] == weight);
  REQUIRE(value.device() == test_device());
  REQUIRE(weight.value().same_view(value));
  REQUIRE(value.to_vector<float>() == before);
  layer.to(Device{});
  REQUIRE(value.to_vector<float>() == before);
}

TEST_CASE("buffers move with their module", "[nn][.cuda]") {
  nn::BatchNorm2d layer(5);
  layer.to(test_device());
  for (const nn::NamedBuffer& buffer : layer.named_buffers())
    REQUIRE(buffer.tensor.device() == test_device());
  REQUIRE(layer.named_buffers()[1].tensor.to_vector<float>() == std::vector<float>(5, 1.f));
}

TEST_CASE("a module whose parameters lie in flat memory does not move", "[nn][.cuda][error]") {
  nn::Linear layer(3, 4);
  const optim::FlatParameters parameters(layer.named_parameters());
  REQUIRE_THROWS_WITH(layer.to(test_device()), ContainsSubstring("move a module before"));
}
