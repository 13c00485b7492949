// SPDX-License-Identifier: MIT
// tests/core/happens_before_test.cpp - which accesses of streams are ordered and which are not.
#include "core/cuda/happens_before.h"

#include "tests/support/test.h"

using namespace brigade;

namespace {

char memory[256];

}  // namespace

TEST_CASE("one stream's accesses are ordered", "[core][happens_before]") {
  HappensBefore order;
  REQUIRE(order.access(1, memory, 64, Access::write).empty());
  REQUIRE(order.access(1, memory, 64, Access::write).empty());
}

TEST_CASE("two streams that write the same bytes unordered are found, other bytes not",
          "[core][happens_before]") {
  HappensBefore order;
  REQUIRE(order.access(1, memory, 64, Access::write).empty());
  REQUIRE(order.access(2, memory + 64, 64, Access::write).empty());
  REQUIRE(order.access(2, memory + 63, 1, Access::write) ==
          "stream 2 writes what stream 1 writes, and nothing orders them");
}

TEST_CASE("reads need no order among themselves, but a write behind them does", "[core][happens_before]") {
  HappensBefore order;
  REQUIRE(order.access(1, memory, 64, Access::read).empty());
  REQUIRE(order.access(2, memory, 64, Access::read).empty());
  REQUIRE_FALSE(order.access(3, memory, 64, Access::write).empty());
}

TEST_CASE("an event orders what came before it with what waits for it, over any number of streams",
          "[core][happens_before]") {
  HappensBefore order;
  REQUIRE(order.access(1, memory, 64, Access::write).empty());
  order.wait(2, order.record(1));
  order.wait(3, order.record(2));
  REQUIRE(order.access(3, memory, 64, Access::write).empty());
}

TEST_CASE("an event does not order what its stream was given after it", "[core][happens_before]") {
  HappensBefore order;
  const std::size_t early = order.record(1);
  REQUIRE(order.access(1, memory, 64, Access::write).empty());
  order.wait(2, early);
  REQUIRE_FALSE(order.access(2, memory, 64, Access::write).empty());
}

TEST_CASE("what the host saw done comes before all that it gives streams later", "[core][happens_before]") {
  HappensBefore order;
  REQUIRE(order.access(1, memory, 64, Access::write).empty());
  order.host_saw(order.record(1));
  REQUIRE(order.access(2, memory, 64, Access::write).empty());
}

TEST_CASE("a write in order hides what came before it only where it covers it", "[core][happens_before]") {
  HappensBefore order;
  REQUIRE(order.access(1, memory, 128, Access::write).empty());
  order.wait(2, order.record(1));
  REQUIRE(order.access(2, memory, 64, Access::write).empty());
  REQUIRE_FALSE(
      order.access(3, memory + 64, 64, Access::read).empty());  // Stream 1's second half is still there.
}
