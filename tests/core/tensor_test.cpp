// SPDX-License-Identifier: MIT
// tests/core/tensor_test.cpp - views of a tensor and their strides.
#include "core/tensor.h"

#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

TEST_CASE("a transposed matrix reads its elements in the other order", "[core][tensor]") {
  const Tensor t = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  REQUIRE(test::values(t.transpose(0, 1)) == std::vector<double>{1, 4, 2, 5, 3, 6});
}
