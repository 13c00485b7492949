// SPDX-License-Identifier: MIT
// tests/nn/schedule_test.cpp - known points of learning-rate schedules.
#include "nn/optim/schedule.h"

#include "core/check.h"
#include "tests/support/test.h"

using namespace brigade;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
using optim::make_schedule;

TEST_CASE("constant is the peak at every step", "[nn][schedule]") {
  const auto lr = make_schedule("constant", {.peak = 0.3, .total_steps = 10});
  for (int step = 0; step < 20; ++step) REQUIRE(lr(step) == 0.3);
}

TEST_CASE("step drops by the factor where it is told to", "[nn][schedule]") {
  const auto lr =
      make_schedule("step", {.peak = 1, .total_steps = 100, .drops = {0.5, 0.75}, .drop_factor = 0.1});
  CHECK(lr(0) == 1);
  CHECK(lr(49) == 1);
  CHECK_THAT(lr(50), WithinRel(0.1, 1e-12));
  CHECK_THAT(lr(74), WithinRel(0.1, 1e-12));
  CHECK_THAT(lr(75), WithinRel(0.01, 1e-12));
}

TEST_CASE("cosine rises linearly, then falls along half a cosine", "[nn][schedule]") {
  const auto lr = make_schedule("cosine", {.peak = 2, .total_steps = 110, .warmup = 1.0 / 11, .min_lr = 0.2});
  CHECK_THAT(lr(0), WithinRel(0.2, 1e-12));
  CHECK_THAT(lr(4), WithinRel(1.0, 1e-12));
  CHECK_THAT(lr(9), WithinRel(2.0, 1e-12));
  CHECK_THAT(lr(10), WithinRel(2.0, 1e-12));
  CHECK_THAT(lr(60), WithinRel(1.1, 1e-12));  // Half way: the mean of both ends.
  CHECK_THAT(lr(109), WithinAbs(0.2, 1e-3));
  CHECK(lr(109) > 0.2);
  CHECK(lr(500) == lr(109));
}

TEST_CASE("cosine without warm-up starts at the peak", "[nn][schedule]") {
  REQUIRE(make_schedule("cosine", {.peak = 2, .total_steps = 10, .warmup = 0})(0) == 2);
}

TEST_CASE("one_cycle takes the values of PyTorch's OneCycleLR", "[nn][schedule]") {
  // torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20, cycle_momentum=False), 1.13.1
  const std::vector<double> expected{0.0040000000000000036,
                                     0.013167184270002533,
                                     0.037167184270002526,
                                     0.06683281572999747,
                                     0.09083281572999748,
                                     0.1,
                                     0.09874640062350874,
                                     0.09504846320134738,
                                     0.089091617757105,
                                     0.0811745653949763,
                                     0.07169430017913009,
                                     0.06112620219362893,
                                     0.0500002,
                                     0.03887419780637107,
                                     0.028306099820869922,
                                     0.0188258346050237,
                                     0.010908782242895003,
                                     0.004951936798652629,
                                     0.0012539993764912555,
                                     4e-07};
  const auto lr = make_schedule("one_cycle", {.peak = 0.1, .total_steps = 20});
  for (std::size_t step = 0; step < expected.size(); ++step)
    CHECK_THAT(lr(static_cast<std::int64_t>(step)), WithinRel(expected[step], 1e-9));
}

TEST_CASE("schedules refuse options out of range and unknown names", "[nn][schedule][error]") {
  CHECK_THROWS_WITH(
      make_schedule("cosin", {}),
      ContainsSubstring("unknown schedule \"cosin\"; choose from constant, step, cosine, one_cycle"));
  CHECK_THROWS_WITH(make_schedule("cosine", {.total_steps = 0}), ContainsSubstring("got steps 0"));
  CHECK_THROWS_WITH(make_schedule("cosine", {.warmup = 1.5}), ContainsSubstring("warm-up 1.5"));
  CHECK_THROWS_WITH(make_schedule("constant", {.peak = -1}), ContainsSubstring("got peak -1"));
  CHECK_THROWS_WITH(make_schedule("one_cycle", {.rise = 2}), ContainsSubstring("got rise 2"));
  CHECK_THROWS_WITH(make_schedule("constant", {})(-1), ContainsSubstring("step must be at least 0; got -1"));
}
