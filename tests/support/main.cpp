// SPDX-License-Identifier: MIT
// tests/support/main.cpp - main() of every test program, and skip().
#define CATCH_CONFIG_RUNNER
#include <atomic>
#include <iostream>

#include "tests/support/skip.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

namespace brigade::test {
namespace {
std::atomic<bool> skipped = false;
}

void skip(const std::string& reason) {
  skipped = true;
  std::cout << "skipped: " << reason << std::endl;
}

}  // namespace brigade::test

int main(int argc, char** argv) {
  // Tests that were sent to a device (test_device()) that is not here.
  if (const auto type = brigade::test::test_device().type; brigade::device_count(type) == 0) {
    brigade::test::skip(brigade::device_status(type));
    return brigade::test::kSkipCode;
  }
  // Catch returns the number of failed assertions: four of them must not look like kSkipCode.
  const int failed = Catch::Session().run(argc, argv);
  if (failed != 0) return 1;
  return brigade::test::skipped ? brigade::test::kSkipCode : 0;
}
