// SPDX-License-Identifier: MIT
// tests/dist/chunks_test.cpp - long messages in pieces that an int can count, watched by a recorder instead of memory.
#include "dist/chunks.h"

#include <climits>
#include <utility>
#include <vector>

#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {

using Pieces = std::vector<std::pair<std::int64_t, std::int64_t>>;

Pieces record(std::int64_t count, std::int64_t max_chunk) {
  Pieces pieces;
  for_each_chunk(count, max_chunk,
                 [&](std::int64_t offset, std::int64_t n) { pieces.emplace_back(offset, n); });
  return pieces;
}

}  // namespace

TEST_CASE("pieces cover a message beyond INT_MAX once, without a gap", "[dist][chunks][A10]") {
  const std::int64_t counts[] = {(std::int64_t{1} << 31) + 5, std::int64_t{1} << 32, 600'000'000};
  const std::int64_t limits[] = {INT_MAX, 1 << 28, (1 << 28) - 1};
  for (const std::int64_t count : counts) {
    for (const std::int64_t limit : limits) {
      std::int64_t next = 0;
      for (const auto& [offset, n] : record(count, limit)) {
        REQUIRE(offset == next);
        REQUIRE(n > 0);
        REQUIRE(n <= limit);
        next = offset + n;
      }
      REQUIRE(next == count);
    }
  }
}

TEST_CASE("the last piece of 2^31 + 5 elements starts beyond 32 bits", "[dist][chunks][A10]") {
  REQUIRE(record((std::int64_t{1} << 31) + 5, INT_MAX) == Pieces{{0, INT_MAX}, {INT_MAX, 6}});
  REQUIRE(record(600'000'000, INT_MAX) == Pieces{{0, 600'000'000}});
}

TEST_CASE("an empty message has no piece, and a limit below one is refused", "[dist][chunks]") {
  REQUIRE(record(0, 7).empty());
  REQUIRE(record(7, 7) == Pieces{{0, 7}});
  REQUIRE_THROWS_WITH(record(5, 0), ContainsSubstring("max_chunk > 0"));
  REQUIRE_THROWS_WITH(record(-1, 5), ContainsSubstring("count >= 0"));
}
