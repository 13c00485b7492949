// SPDX-License-Identifier: MIT
// tests/core/shape_test.cpp - sizes, strides, dims and broadcasting.
#include "core/shape.h"

#include <vector>

#include "tests/support/test.h"

using namespace brigade;

TEST_CASE("numel multiplies the sizes and is 1 for a scalar", "[core][shape]") {
  REQUIRE(numel({}) == 1);
  REQUIRE(numel({2, 3, 4}) == 24);
  REQUIRE(numel({5, 0, 7}) == 0);
  REQUIRE(numel({std::int64_t{1} << 40, 1 << 10}) == std::int64_t{1} << 50);
}

TEST_CASE("numel refuses negative sizes and products beyond 63 bits", "[core][shape][error]") {
  REQUIRE_THROWS_WITH(numel({2, -1}), ContainsSubstring("not negative") && ContainsSubstring("[2, -1]"));
  REQUIRE_THROWS_WITH(numel({std::int64_t{1} << 32, std::int64_t{1} << 31}),
                      ContainsSubstring("2^63") && ContainsSubstring("[4294967296, 2147483648]"));
}

TEST_CASE("Dims insert and erase shift what stands behind", "[core][shape]") {
  Dims dims{1, 2, 3};
  dims.insert(1, 9);
  REQUIRE(dims == Dims{1, 9, 2, 3});
  dims.erase(0);
  REQUIRE(dims == Dims{9, 2, 3});
  dims.push_back(4);
  REQUIRE(dims.back() == 4);
  REQUIRE(dims.size() == 4);
  REQUIRE_FALSE(dims == Dims{9, 2, 3});
  REQUIRE(Dims::filled(3, 7) == Dims{7, 7, 7});
  REQUIRE(str(dims, Dims{}) == "[9, 2, 3, 4][]");
}

TEST_CASE("Dims holds at most kMaxDims numbers", "[core][shape][error]") {
  Dims dims = Dims::filled(kMaxDims, 1);
  REQUIRE_THROWS_WITH(dims.push_back(1), ContainsSubstring("at most 8 dims"));
  REQUIRE(dims.size() == kMaxDims);
  const std::vector<std::int64_t> nine(9, 1);
  REQUIRE_THROWS_WITH(Dims(nine), ContainsSubstring("at most 8 dims; got 9"));
}

TEST_CASE("dense strides are row-major, or N H W C for channels_last", "[core][shape]") {
  REQUIRE(dense_strides({2, 3, 4}) == Strides{12, 4, 1});
  REQUIRE(dense_strides({}) == Strides{});
  REQUIRE(dense_strides({2, 3, 4, 5}, MemoryFormat::channels_last) == Strides{60, 1, 15, 3});
  REQUIRE_THROWS_WITH(dense_strides({2, 3, 4}, MemoryFormat::channels_last),
                      ContainsSubstring("[N, C, H, W]") && ContainsSubstring("[2, 3, 4]"));
}

TEST_CASE("a dim counts from the end when negative and must exist", "[core][shape]") {
  REQUIRE(normalize_dim("sum", -1, 3) == 2);
  REQUIRE(normalize_dim("sum", -3, 3) == 0);
  REQUIRE(normalize_dim("sum", 2, 3) == 2);
  REQUIRE_THROWS_WITH(normalize_dim("sum", 3, 3), "sum: dim must lie in [-3, 3); got 3");
  REQUIRE_THROWS_WITH(normalize_dim("sum", -4, 3), "sum: dim must lie in [-3, 3); got -4");
  REQUIRE_THROWS_AS(normalize_dim("sum", 0, 0), Error);
}

TEST_CASE("broadcasting aligns at the right and stretches sizes of 1 on either side", "[core][shape]") {
  REQUIRE(broadcast_shapes("add", {8, 1, 5}, {3, 1}) == Shape{8, 3, 5});
  REQUIRE(broadcast_shapes("add", {3, 1}, {8, 1, 5}) == Shape{8, 3, 5});
  REQUIRE(broadcast_shapes("add", {}, {2, 3}) == Shape{2, 3});
  REQUIRE(broadcast_shapes("add", {1, 4}, {0, 4}) == Shape{0, 4});
}

TEST_CASE("shapes that do not broadcast are both named with the operation", "[core][shape][error]") {
  REQUIRE_THROWS_WITH(broadcast_shapes("add", {2, 3}, {2, 4}),
                      "add: shapes must broadcast; got [2, 3] and [2, 4]");
  REQUIRE_THROWS_AS(broadcast_shapes("add", {0}, {2}), Error);
}
