// SPDX-License-Identifier: MIT
// tests/core/compiler_test.cpp - a compiler fault that we must compile around: see the flags in CMakeLists.txt.
#include <cstdint>
#include <vector>

#include "tests/support/test.h"

TEST_CASE("constant lists that end in zeros keep them (g++ 12 with AVX-512 loses them)", "[core][compiler]") {
  const std::vector<std::int64_t> one{1, 1, 1, 0}, two{1, 1, 0, 0}, eight{2, 2, 2, 2, 2, 2, 2, 0};
  const std::vector<double> real{1, 1, 1, 0};
  // Read through volatile indices, so that the comparison is not folded at compile time.
  volatile std::size_t i = 3, seven = 7;
  CHECK(one[i] == 0);
  CHECK(two[i] == 0);
  CHECK(two[i - 1] == 0);
  CHECK(eight[seven] == 0);
  CHECK(real[i] == 0);
}
