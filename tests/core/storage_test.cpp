// SPDX-License-Identifier: MIT
// tests/core/storage_test.cpp - lifetimes, slices and versions of device memory.
#include "core/storage.h"

#include <limits>

#include "tests/support/test.h"

using namespace brigade;

TEST_CASE("a slice keeps its parent's memory alive", "[core][storage]") {
  constexpr std::int64_t kBytes = 3 << 20;
  const std::int64_t before = runtime({}).memory_stats().in_use_bytes;
  Storage slice;
  {
    const Storage whole({}, kBytes);
    whole.data()[100] = std::byte{42};
    slice = whole.slice(100, 8).slice(0, 4);
    REQUIRE(slice.data() == whole.data() + 100);
  }
  REQUIRE(slice.bytes() == 4);
  REQUIRE(slice.data()[0] == std::byte{42});
  REQUIRE(runtime({}).memory_stats().in_use_bytes >= before + kBytes);
  slice = Storage();
  REQUIRE(runtime({}).memory_stats().in_use_bytes == before);
}

TEST_CASE("slices have versions of their own", "[core][storage]") {
  const Storage whole({}, 256);
  const Storage a = whole.slice(0, 128), b = whole.slice(128, 128), again = a;
  a.bump_version();
  REQUIRE(a.version() == 1);
  REQUIRE(again.version() == 1);  // A copy is the same range; a second slice() is not.
  REQUIRE(b.version() == 0);
  REQUIRE(whole.version() == 0);
}

TEST_CASE("unique is false while anybody else holds the range or a slice of it", "[core][storage]") {
  const Storage whole({}, 256);
  REQUIRE(whole.unique());
  {
    const Storage copy = whole;
    REQUIRE_FALSE(whole.unique());
  }
  REQUIRE(whole.unique());
  REQUIRE(whole.sole_owner());
  const Storage slice = whole.slice(0, 1);
  REQUIRE_FALSE(whole.unique());
  REQUIRE_FALSE(whole.sole_owner());
  REQUIRE(slice.unique());
  REQUIRE_FALSE(slice.sole_owner());  // Others may see its bytes through `whole`.
}

TEST_CASE("a slice beyond its parent is refused", "[core][storage][error]") {
  const Storage whole({}, 64);
  REQUIRE_NOTHROW(whole.slice(64, 0));
  REQUIRE_THROWS_WITH(whole.slice(60, 5), "slice: range must lie in 64 bytes; got offset 60, bytes 5");
  REQUIRE_THROWS_AS(whole.slice(-1, 2), Error);
  REQUIRE_THROWS_AS(whole.slice(0, -1), Error);
  REQUIRE_THROWS_AS(whole.slice(8, std::numeric_limits<std::int64_t>::max()), Error);
  REQUIRE_THROWS_AS(whole.slice(std::numeric_limits<std::int64_t>::max(), 8), Error);
}
