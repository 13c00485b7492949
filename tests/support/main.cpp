// SPDX-License-Identifier: MIT
// tests/support/main.cpp - main() of every test program.
#define CATCH_CONFIG_RUNNER
#include "tests/support/test.h"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
