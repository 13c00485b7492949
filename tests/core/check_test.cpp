// SPDX-License-Identifier: MIT
// tests/core/check_test.cpp - texts of messages and the check that throws them.
#include "core/check.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/device.h"
#include "core/runtime.h"
#include "tests/support/test.h"

using namespace brigade;

TEST_CASE("str joins texts, characters, booleans and numbers without separators", "[core][check]") {
  REQUIRE(str() == "");
  REQUIRE(str("a", std::string("b"), std::string_view("cd").substr(1), 'e', true, false) == "abdetruefalse");
  REQUIRE(str(-1, ' ', 7u, ' ', std::numeric_limits<std::int64_t>::min()) == "-1 7 -9223372036854775808");
  REQUIRE(str(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  REQUIRE(str(std::uint8_t{200}, " ", std::int16_t{-3}) == "200 -3");
}

TEST_CASE("str writes the shortest decimal that reads back as the same number", "[core][check]") {
  REQUIRE(str(0.1) == "0.1");
  REQUIRE(str(1e300) == "1e+300");
  REQUIRE(str(-2.5f) == "-2.5");
  const double third = 1.0 / 3.0;
  REQUIRE(std::stod(str(third)) == third);
  REQUIRE(str(std::numeric_limits<double>::infinity()) == "inf");
}

TEST_CASE("a check that holds evaluates none of its message", "[core][check]") {
  int built = 0;
  const auto part = [&] { return ++built; };
  BRIGADE_CHECK(true, "never ", part());
  REQUIRE(built == 0);
  REQUIRE_THROWS_AS([&] { BRIGADE_CHECK(false, "now ", part()); }(), Error);
  REQUIRE(built == 1);
}

TEST_CASE("a check that fails throws Error with the joined message", "[core][check][error]") {
  const int got = 3;
  REQUIRE_THROWS_WITH([&] { BRIGADE_CHECK(got == 4, "op: needs 4; got ", got); }(), "op: needs 4; got 3");
}

TEST_CASE("a device that is not compiled in is named with what to choose instead", "[core][device][error]") {
  REQUIRE(str(Device{}) == "cpu");
  REQUIRE(str(Device{DeviceType::cuda, 2}) == "cuda:2");
  REQUIRE_THROWS_WITH(runtime(Device{static_cast<DeviceType>(9), 0}), ContainsSubstring("choose cpu"));
}
