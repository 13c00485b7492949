// SPDX-License-Identifier: MIT
// tests/dist/ledger_test.cpp - interval arithmetic, and the overlap drawn from it.
#include "dist/ledger.h"

#include <random>

#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;

namespace {
Clock::time_point at(int t) { return Clock::time_point(Clock::duration(t)); }
Interval span_of(int begin, int end) { return {at(begin), at(end)}; }
}  // namespace

TEST_CASE("overlapping transfers count once and overlap is a true intersection", "[dist][ledger]") {
  StepRecord step;
  step.backward = span_of(0, 100);
  for (const auto& [begin, end] :
       {std::pair{90, 95}, std::pair{10, 30}, std::pair{20, 40}, std::pair{98, 110}}) {
    BucketRecord bucket;
    bucket.start = at(begin);
    bucket.end = at(end);
    step.buckets.push_back(bucket);
  }
  REQUIRE(step.communication().count() == 30 + 5 + 12);
  REQUIRE(step.hidden().count() == 30 + 5 + 2);
  REQUIRE(step.exposed().count() == 10);
}

TEST_CASE("interval lengths agree with counting ticks one by one", "[dist][ledger]") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> lists[2];
    bool covered[2][64] = {};
    for (int which = 0; which < 2; ++which)
      for (int i = static_cast<int>(random() % 6); i > 0; --i) {
        const int begin = static_cast<int>(random() % 60), end = begin + static_cast<int>(random() % 5);
        lists[which].push_back(span_of(begin, end));
        for (int t = begin; t < end; ++t) covered[which][t] = true;
      }
    int in_first = 0, in_both = 0;
    for (int t = 0; t < 64; ++t) {
      in_first += covered[0][t];
      in_both += covered[0][t] && covered[1][t];
    }
    REQUIRE(union_length(lists[0]).count() == in_first);
    REQUIRE(intersection_length(lists[0], lists[1]).count() == in_both);
  }
}

TEST_CASE("the ledger keeps the last steps and numbers them all", "[dist][ledger]") {
  Ledger ledger(3);
  REQUIRE_THROWS_WITH(ledger.last(), ContainsSubstring("no step recorded"));
  for (int i = 0; i < 5; ++i) ledger.begin_step();
  REQUIRE(ledger.steps().size() == 3);
  REQUIRE(ledger.steps().front().step == 2);
  REQUIRE(ledger.last().step == 4);
  REQUIRE(ledger.steps_recorded() == 5);
}
