// SPDX-License-Identifier: MIT
// tests/dist/clock_sync_test.cpp - clocks that are wrong by a known amount are found out within the bound.
#include "dist/clock_sync.h"

#include <array>
#include <atomic>

#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;
using namespace std::chrono_literals;

TEST_CASE("a planted offset is found within its error bound, on every rank", "[dist][clock][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    // Rank r's clock is ahead by r * 300 ms: more than any round trip.
    const Clock::duration ahead = group.rank() * 300ms;
    const auto wrong_clock = [ahead] { return Clock::now() + ahead; };
    const auto found = std::make_shared<ClockOffset>();
    group
        .run({.operation = "clocks",
              .run = [=](Transport& transport) { *found = measure_clock(transport, 10, wrong_clock); }})
        .wait();
    // Ranks of a test are on one host, whose clock they share.
    const Clock::duration wrong = found->offset + ahead;
    require(wrong <= found->error && wrong >= -found->error,
            str("off by ", wrong.count(), " ns, bound ", found->error.count()));
    require(group.rank() == 0 ? found->error == 0ns : found->error > 0ns, "a bound is kept");
    require(found->error < 150ms, "and says something");
    const Clock::time_point converted = found->on_rank_0(wrong_clock());
    require(converted - Clock::now() <= found->error, "readings are converted");
  });
}

TEST_CASE("clocks that agree within the bound count as one", "[dist][clock][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto found = std::make_shared<ClockOffset>();
    group.run({.operation = "clocks", .run = [=](Transport& t) { *found = measure_clock(t); }}).wait();
    require(found->offset == Clock::duration{}, str("offset ", found->offset.count()));
  });
}

TEST_CASE("of several rounds the shortest counts", "[dist][clock]") {
  test::for_each_world(
      [](ProcessGroup& group) {
        // The clock of the asking rank jumps between readings: round trips of 100, 50 and 200 ms by its own account.
        const auto reading = std::make_shared<std::atomic<int>>(0);
        const auto clock = [reading, rank = group.rank()] {
          constexpr std::array kTimes{0, 100, 1000, 1050, 2000, 2200};
          return rank == 0 ? Clock::time_point{} : Clock::time_point(1ms * kTimes[(*reading)++]);
        };
        const auto found = std::make_shared<ClockOffset>();
        group.run({.operation = "clocks", .run = [=](Transport& t) { *found = measure_clock(t, 3, clock); }})
            .wait();
        if (group.rank() == 0) return;
        require(found->error == 25ms, str("error ", found->error.count()));
        require(found->offset == -1025ms && found->measured == Clock::time_point(1050ms),
                "of the second round");
      },
      {.sizes = {2}});
}

TEST_CASE("the bound grows with time in both directions", "[dist][clock]") {
  const ClockOffset offset{.error = 10us, .measured = Clock::time_point(5s)};
  REQUIRE(offset.error_at(Clock::time_point(5s)) == 10us);
  REQUIRE(offset.error_at(Clock::time_point(6s)) == 110us);
  REQUIRE(offset.error_at(Clock::time_point(4s)) == 110us);
}
