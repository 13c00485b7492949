// SPDX-License-Identifier: MIT
// tests/core/one_line_test.cpp - what may stand in a message.
#include "core/one_line.h"

#include "tests/support/test.h"

using brigade::one_line;

TEST_CASE("control characters become question marks, other bytes stay", "[core][one_line]") {
  CHECK(one_line("a\nb\x1b[31m\x7f\t") == "a?b?[31m??");
  CHECK(one_line(std::string("\0x", 2)) == "?x");
  CHECK(one_line("gr\xc3\xb6\xc3\x9f"
                 "er") ==
        "gr\xc3\xb6\xc3\x9f"
        "er");
}

TEST_CASE("what is longer than the limit says so", "[core][one_line]") {
  CHECK(one_line("abcd", 4) == "abcd");
  CHECK(one_line("abcde", 4) == "abcd…");
  CHECK(one_line("", 0).empty());
}
