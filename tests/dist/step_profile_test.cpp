// SPDX-License-Identifier: MIT
// tests/dist/step_profile_test.cpp - a typical step, drawn from ledgers that are written by hand.
#include "dist/step_profile.h"

#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using Catch::Matchers::WithinAbs;

namespace {

constexpr double kNanosecond = 1e-9;

Clock::time_point at_ms(double t) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(t)));
}

const std::vector<ParameterInfo> kParameters{{"first", 4000, DType::f32, 2}, {"second", 8000, DType::f32, 2}};

// Second's gradient is ready first and travels first.
BucketPlan plan() { return plan_from_ends(kParameters, {1, 0}, std::vector<std::int32_t>{1, 2}, "by hand"); }

// A step of 10 ms before backward, 20 ms of it, and 5 ms behind the last bucket. Each bucket takes 8 ms, the second
// one starts 1 ms behind the first.
StepRecord& add_step(Ledger& ledger, double before_ms = 10) {
  StepRecord& s = ledger.begin_step();
  const double b = before_ms;
  s.backward = {at_ms(b), at_ms(b + 20)};
  s.ready = {at_ms(b + 12), at_ms(b + 19)};
  s.buckets.resize(2);
  s.buckets[0].first_ready = s.buckets[0].last_ready = s.ready[0];
  s.buckets[0].start = at_ms(b + 12);
  s.buckets[0].end = at_ms(b + 20);
  s.buckets[1].bucket = 1;
  s.buckets[1].first_ready = s.buckets[1].last_ready = s.ready[1];
  s.buckets[1].start = at_ms(b + 21);
  s.buckets[1].end = at_ms(b + 29);
  s.control = {at_ms(b), at_ms(b + 3)};
  s.control_bytes = 128;
  s.whole = {at_ms(0), at_ms(b + 34)};
  return s;
}

}  // namespace

TEST_CASE("a profile has what one rank does in a step", "[dist][profile]") {
  Ledger ledger;
  for (int i = 0; i < 6; ++i) add_step(ledger);
  const StepProfile p = make_profile(ledger, plan(), kParameters, 2);
  REQUIRE(p.ranks == 2);
  REQUIRE(p.steps == 4);  // Without the first two.
  for (const auto& [value, expected_ms] : {std::pair{p.before_s, 10.0},
                                           {p.backward_s, 20.0},
                                           {p.after_s, 5.0},
                                           {p.gap_s, 1.0},
                                           {p.step_s, 44.0},
                                           {p.communication_s, 16.0},
                                           {p.exposed_s, 8.0},
                                           {p.spread, 0.0}})
    REQUIRE_THAT(value, WithinAbs(1e-3 * expected_ms, 10 * kNanosecond));
  REQUIRE_THAT(p.ready_s[0], WithinAbs(0.019, kNanosecond));  // By index, not by position.
  REQUIRE_THAT(p.ready_s[1], WithinAbs(0.012, kNanosecond));
  REQUIRE(p.collectives.size() == 3);
  REQUIRE(p.collectives[0].bytes == 8000);
  REQUIRE(p.collectives[1].bytes == 4000);
  REQUIRE(p.collectives[2].bytes == 128);
  REQUIRE_THAT(p.collectives[0].seconds, WithinAbs(0.008, kNanosecond));
  REQUIRE_THAT(p.collectives[2].seconds, WithinAbs(0.003, kNanosecond));
}

TEST_CASE("one interrupted step changes nothing, steps that differ are the spread", "[dist][profile]") {
  Ledger ledger;
  for (int i = 0; i < 9; ++i) add_step(ledger, i == 5 ? 1000 : 10);
  const StepProfile steady = make_profile(ledger, plan(), kParameters, 1);
  REQUIRE_THAT(steady.before_s, WithinAbs(0.010, kNanosecond));
  REQUIRE_THAT(steady.spread, WithinAbs(0, 1e-6));
  for (int i = 0; i < 90; ++i)
    add_step(ledger, 8 + i % 5);  // 28 … 32 ms of compute: half of them beyond 1 ms.
  const StepProfile varied = make_profile(ledger, plan(), kParameters, 1);
  REQUIRE_THAT(varied.spread, WithinAbs(1 / 0.6745 / 30, 1e-3));
}

TEST_CASE("of several ranks the optimizer's spans are what follows the last bucket", "[dist][profile]") {
  Ledger ledger;
  for (int i = 0; i < 4; ++i)
    add_step(ledger).spans = {
        {.depth = 0, .kind = SpanKind::optimizer, .begin = at_ms(40), .end = at_ms(42)},
        {.depth = 1, .kind = SpanKind::optimizer, .begin = at_ms(40), .end = at_ms(41)}};
  REQUIRE_THAT(make_profile(ledger, plan(), kParameters, 2).after_s, WithinAbs(0.002, kNanosecond));
  REQUIRE_THAT(make_profile(ledger, plan(), kParameters, 1).after_s, WithinAbs(0.005, 10 * kNanosecond));
}

TEST_CASE("steps of earlier plans do not count", "[dist][profile]") {
  Ledger ledger;
  for (int i = 0; i < 5; ++i) add_step(ledger, 500);
  for (int i = 0; i < 5; ++i) add_step(ledger).plan_epoch = 1;
  const StepProfile p = make_profile(ledger, plan(), kParameters, 1);
  REQUIRE(p.steps == 3);
  REQUIRE_THAT(p.before_s, WithinAbs(0.010, kNanosecond));
}

TEST_CASE("where the wire was never busy the gap is the shortest behind a gradient", "[dist][profile]") {
  Ledger ledger;
  for (int i = 0; i < 4; ++i) {
    StepRecord& s = add_step(ledger);
    s.buckets[0].end = at_ms(10 + 13);
    s.buckets[1].start = at_ms(10 + 19.5);  // Ready at 19.
  }
  REQUIRE_THAT(make_profile(ledger, plan(), kParameters, 1).gap_s, WithinAbs(0.0005, kNanosecond));
}

TEST_CASE("without recorded steps there is no profile", "[dist][profile][error]") {
  Ledger ledger;
  REQUIRE_THROWS_WITH(make_profile(ledger, plan(), kParameters, 1),
                      ContainsSubstring("no step of this plan was recorded"));
  for (int i = 0; i < 4; ++i) add_step(ledger).whole = {};
  REQUIRE_THROWS_WITH(make_profile(ledger, plan(), kParameters, 1), ContainsSubstring("in a StepScope"));
}
