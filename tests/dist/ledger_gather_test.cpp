// SPDX-License-Identifier: MIT
// tests/dist/ledger_gather_test.cpp - what ranks recorded arrives on rank 0 whole and on one clock, in messages of a
// bounded size, and a planted straggler is named.
#include "dist/ledger_gather.h"

#include <thread>

#include "autograd/engine.h"
#include "dist/ddp.h"
#include "nn/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;
using namespace std::chrono_literals;

namespace {

Clock::time_point at(int t) { return Clock::time_point(Clock::duration(t)); }

// `steps` steps of two buckets and `spans` spans, no two numbers alike.
void fill(Ledger& ledger, int steps, int spans) {
  int t = 100;
  for (int i = 0; i < steps; ++i) {
    StepRecord& step = ledger.begin_step();
    step.plan_epoch = 7 + i;
    step.whole = {at(t + 1), at(t + 2)};
    step.backward = {at(t + 3), at(t + 4)};
    for (int b = 0; b < 2; ++b) {
      t += 20;
      step.buckets.push_back({.bucket = b,
                              .bytes = t,
                              .parameters = t + 1,
                              .first_ready = at(t + 2),
                              .last_ready = at(t + 3),
                              .launch = at(t + 4),
                              .start = at(t + 5),
                              .end = at(t + 6),
                              .waited = Clock::duration(t + 7),
                              .wire_bytes = t + 8,
                              .square_norm = t + 0.25});
    }
    for (int s = 0; s < spans; ++s)
      step.spans.push_back({.layer = s - 1,
                            .depth = static_cast<std::int16_t>(s % 5),
                            .kind = static_cast<SpanKind>(s % 5),
                            .begin = at(t + s),
                            .end = at(t + s + 1)});
  }
}

std::string text_of(const StepRecord& step, Clock::duration shift) {
  const auto t = [&](Clock::time_point p) { return (p + shift).time_since_epoch().count(); };
  std::string out = str(step.step, " ", step.plan_epoch, " ", t(step.whole.begin), " ", t(step.whole.end),
                        " ", t(step.backward.begin), " ", t(step.backward.end), "\n");
  for (const BucketRecord& b : step.buckets)
    out += str(b.bucket, " ", b.bytes, " ", b.parameters, " ", t(b.first_ready), " ", t(b.last_ready), " ",
               t(b.launch), " ", t(b.start), " ", t(b.end), " ", b.waited.count(), " ", b.wire_bytes, " ",
               b.square_norm, "\n");
  for (const TimedSpan& s : step.spans)
    out += str(s.layer, " ", s.depth, " ", name(s.kind), " ", t(s.begin), " ", t(s.end), "\n");
  return out;
}

}  // namespace

TEST_CASE("steps travel as words and come back on the other clock", "[dist][ledger]") {
  Ledger ledger;
  fill(ledger, 4, 6);
  const ClockOffset clock{.offset = -37ns};
  const auto steps = decode_steps(encode_steps(ledger, 1, clock, 100'000));
  REQUIRE(steps.size() == 3);
  for (const StepRecord& step : steps) REQUIRE(text_of(step, 0ns) == text_of(*ledger.find(step.step), -37ns));
}

TEST_CASE("what does not fit stays behind: spans of old steps first, then old steps", "[dist][ledger]") {
  Ledger ledger;
  fill(ledger, 5, 40);
  const ClockOffset clock;
  const std::size_t whole = encode_steps(ledger, 4, clock, 100'000).size() - 1;  // Of one step.
  const auto bare = whole - 3 * 40;  // Two are less than a whole one.
  // Room for two whole steps and two bare ones.
  const auto words = encode_steps(ledger, 0, clock, 1 + 2 * whole + 2 * bare);
  REQUIRE(words.size() <= 1 + 2 * whole + 2 * bare);
  const auto steps = decode_steps(words);
  REQUIRE(steps.size() == 4);
  REQUIRE(steps.front().step == 1);
  REQUIRE(steps[0].spans.empty());
  REQUIRE(steps[1].spans.empty());
  REQUIRE(steps[2].spans.size() == 40);
  REQUIRE(steps[3].spans.size() == 40);
  REQUIRE(decode_steps(encode_steps(ledger, 0, clock, 1)).empty());
}

TEST_CASE("words that are no steps are refused", "[dist][ledger][error]") {
  Ledger ledger;
  fill(ledger, 1, 2);
  auto words = encode_steps(ledger, 0, {}, 100'000);
  auto cut = words;
  cut.pop_back();
  REQUIRE_THROWS_WITH(decode_steps(cut), ContainsSubstring("ends too early"));
  words[0] = 1 << 30;
  REQUIRE_THROWS_WITH(decode_steps(words), ContainsSubstring("speaks of 1073741824 records"));
  words[0] = -1;
  REQUIRE_THROWS_WITH(decode_steps(words), ContainsSubstring("speaks of -1 records"));
  REQUIRE_THROWS_WITH(decode_steps({}), ContainsSubstring("ends too early"));
}

TEST_CASE("rank 0 gets every step of every rank once, in order, also steps taken meanwhile",
          "[dist][ledger][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group, {.plan = {.caps = {.bytes = 700, .first_bytes = 100}}});
    LedgerGather gather(group, ddp.ledger());
    std::vector<GatheredStep> all;
    const auto take = [&] {
      for (GatheredStep& step : gather.finish()) all.push_back(std::move(step));
    };
    for (int step = 0; step < 7; ++step) {
      {
        const StepScope scope(ddp.ledger());
        ddp.parameters().zero_grad();
        backward(test::toy_loss(*model, test::toy_batch({16}, 24, group.rank(), group.size(), 5)));
      }
      if (step % 3 == 1) gather.begin();  // It travels behind step 1, and step 2 does not wait for it.
      if (step % 3 == 2) take();
    }
    gather.begin();
    take();
    gather.begin();  // Nothing new.
    require(gather.finish().empty(), "nothing comes twice");
    require(gather.clocks().size() == (group.rank() == 0 ? static_cast<std::size_t>(group.size()) : 1),
            "clocks");
    if (group.rank() > 0) return require(all.empty(), "only rank 0 learns");
    require(all.size() == 7, str(all.size(), " steps"));
    for (std::size_t i = 0; i < all.size(); ++i) {
      require(all[i].step == static_cast<std::int64_t>(i), "in order");
      require(all[i].ranks.size() == static_cast<std::size_t>(group.size()), "of all ranks");
      for (const StepRecord& record : all[i].ranks) {
        require(record.buckets.size() == ddp.plan().buckets.size() && !record.spans.empty(), "whole");
        // On one clock: no rank's bucket ends before the last rank's gradients were ready (up to the bound).
        for (std::size_t b = 0; b < record.buckets.size(); ++b)
          for (const StepRecord& other : all[i].ranks)
            require(record.buckets[b].end + 100ms >= other.buckets[b].last_ready, "one clock");
      }
    }
  });
}

TEST_CASE("a rank that is late by a known time is named as the straggler", "[dist][ledger][ranks]") {
  test::for_each_world(
      [](ProcessGroup& group) {
        if (group.size() == 1) return;  // Under mpiexec -n 1; alone nobody is late.
        const int late = group.size() - 1;
        const auto model = test::toy_mlp();
        Ddp ddp(model->named_parameters(), {}, group);
        LedgerGather gather(group, ddp.ledger());
        for (int step = 0; step < 3; ++step) {
          ddp.parameters().zero_grad();
          const Variable loss =
              test::toy_loss(*model, test::toy_batch({16}, 24, group.rank(), group.size(), 5));
          if (group.rank() == late) std::this_thread::sleep_for(100ms);
          backward(loss);
        }
        gather.begin();
        for (const GatheredStep& step : gather.finish()) {
          require(step.straggler().rank == late && step.straggler(0).rank == late,
                  str("rank ", step.straggler().rank, " was named"));
          require(step.straggler().lag > 50ms, "and by how much");
        }
      },
      {.sizes = {2, 3}});
}

TEST_CASE("buckets on a modelled network take the time that the model says, as the ledger has it",
          "[dist][ledger]") {
  NetworkModel network;
  network.links[0].link = {.latency_s = 0.002, .bytes_per_s = 1e6};
  test::for_each_world(
      [&](ProcessGroup& group) {
        const auto model = test::toy_mlp();
        Ddp ddp(model->named_parameters(), {}, group,
                {.plan = {.caps = {.bytes = 1500, .first_bytes = 100}}});
        std::vector<double> best(ddp.plan().buckets.size(), 1e9);
        std::int64_t bytes = 0;
        for (int step = 0; step < 10; ++step) {
          ddp.parameters().zero_grad();
          backward(test::toy_loss(*model, test::toy_batch({16}, 24, group.rank(), group.size(), 5)));
          for (const BucketRecord& b : ddp.ledger().last().buckets) {
            double& ms = best[static_cast<std::size_t>(b.bucket)];
            ms = std::min(ms, milliseconds(b.end - b.start));
            bytes += b.bytes;
          }
        }
        require(bytes > 0 && best.size() > 1, "several buckets");
        for (const BucketRecord& b : ddp.ledger().last().buckets) {
          const double model_ms =
              1e-6 * static_cast<double>(network.time("all_reduce", b.bytes, group.size(), 0, 0).count());
          const double measured = best[static_cast<std::size_t>(b.bucket)];
          require(std::abs(measured / model_ms - 1) < 0.05,
                  str("bucket ", b.bucket, ": ", measured, " ms, model ", model_ms));
        }
      },
      {.sizes = {2, 4}, .network = network});
}
