// SPDX-License-Identifier: MIT
// tests/dist/ledger_test.cpp - interval arithmetic, the overlap drawn from it, and what a ledger keeps.
#include "dist/ledger.h"

#include <random>

#include "autograd/engine.h"
#include "dist/ddp.h"
#include "nn/optim/sgd.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using Catch::Matchers::WithinRel;
using namespace brigade::dist;
using test::require;

namespace {
Clock::time_point at(int t) { return Clock::time_point(Clock::duration(t)); }
Interval span_of(int begin, int end) { return {at(begin), at(end)}; }

BucketRecord bucket_of(int begin, int end) {
  BucketRecord bucket;
  bucket.start = at(begin);
  bucket.end = at(end);
  return bucket;
}

// One step as a program takes it, under a scope.
void train_step(Ddp& ddp, nn::Module& model, optim::Optimizer& optimizer, std::uint64_t seed) {
  const StepScope scope(ddp.ledger());
  ddp.parameters().zero_grad();
  const ProcessGroup& group = ddp.group();
  backward(test::toy_loss(model, test::toy_batch({16}, 24, group.rank(), group.size(), seed)));
  optimizer.step();
}
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

namespace {

// A device's event, of which the test decides when it is over.
class SlowEvent final : public EventState {
 public:
  bool done() const override { return happened.has_value(); }
  bool wait_until(Clock::time_point) const override {
    waited = true;
    return done();
  }
  std::optional<Clock::time_point> time() const override { return happened; }
  std::optional<Clock::time_point> happened;
  mutable bool waited = false;
};

}  // namespace

TEST_CASE("times of a device are settled two steps later, and until then the step is told apart",
          "[dist][ledger]") {
  Ledger ledger;
  const auto event = std::make_shared<SlowEvent>();
  ledger.begin_step();
  ledger.later(Event(event), [](StepRecord& step, Clock::time_point time) { step.backward.end = time; });
  REQUIRE_FALSE(ledger.last().settled);
  REQUIRE(ledger.newest() == nullptr);
  REQUIRE(ledger.steps_settled() == 0);
  ledger.begin_step();
  REQUIRE_FALSE(event->waited);  // The device has a whole step to get there.
  REQUIRE(ledger.newest() == &ledger.last());
  event->happened = at(77);
  ledger.begin_step();
  REQUIRE(event->waited);
  REQUIRE(ledger.find(0)->settled);
  REQUIRE(ledger.find(0)->backward.end == at(77));
  REQUIRE(ledger.steps_settled() == 3);
}

TEST_CASE("a time that is known, or that nobody takes, is put down at once", "[dist][ledger]") {
  Ledger ledger;
  ledger.begin_step();
  const auto event = std::make_shared<SlowEvent>();
  event->happened = at(5);
  ledger.later(Event(event), [](StepRecord& step, Clock::time_point time) { step.backward.begin = time; });
  ledger.later(Event(), [](StepRecord& step, Clock::time_point time) { step.backward.end = time; });
  REQUIRE(ledger.last().settled);
  REQUIRE(ledger.last().backward.begin == at(5));
  REQUIRE(ledger.last().backward.end > at(5));
}

TEST_CASE("settle waits for all that is late", "[dist][ledger]") {
  Ledger ledger;
  for (int i = 0; i < 2; ++i) {
    ledger.begin_step();
    const auto event = std::make_shared<SlowEvent>();
    ledger.later(Event(event), [](StepRecord& step, Clock::time_point time) { step.backward.end = time; });
    event->happened = at(i);
  }
  ledger.settle();
  REQUIRE(ledger.steps_settled() == 2);
  REQUIRE(ledger.last().backward.end == at(1));
}

TEST_CASE("exposed and hidden add up to communication, in total and bucket by bucket", "[dist][ledger]") {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    StepRecord step;
    const int begin = static_cast<int>(random() % 40);
    step.backward = span_of(begin, begin + static_cast<int>(random() % 40));
    // As on one stream: buckets follow each other.
    for (int t = static_cast<int>(random() % 20); t < 90; t += static_cast<int>(random() % 10)) {
      const int end = t + static_cast<int>(random() % 12);
      step.buckets.push_back(bucket_of(t, end));
      t = end;
    }
    std::int64_t exposed = 0;  // Counted tick by tick.
    Clock::duration by_bucket{};
    for (const BucketRecord& bucket : step.buckets) {
      by_bucket += step.exposed(bucket);
      for (Clock::time_point t = bucket.start; t < bucket.end; ++t)
        exposed += t < step.backward.begin || t >= step.backward.end;
    }
    REQUIRE(step.exposed().count() == exposed);
    REQUIRE(by_bucket.count() == exposed);
    REQUIRE(step.exposed() + step.hidden() == step.communication());
  }
}

TEST_CASE("bus bandwidth is 2 (n-1)/n of the bytes over the time on the wire", "[dist][ledger]") {
  StepRecord step;
  step.buckets = {bucket_of(0, 1000), bucket_of(500, 2000)};  // Nanoseconds; together 2 us.
  step.buckets[0].wire_bytes = 3000;
  step.buckets[1].wire_bytes = 5000;
  REQUIRE_THAT(step.bus_bandwidth(4), WithinRel(1.5 * 8000 / 2e-6, 1e-12));
  REQUIRE_THAT(step.bus_bandwidth(2), WithinRel(8000 / 2e-6, 1e-12));
  REQUIRE(step.bus_bandwidth(1) == 0);
  REQUIRE(StepRecord().bus_bandwidth(4) == 0);
}

TEST_CASE("the straggler is the last rank, its lag counts from the median", "[dist][ledger]") {
  const auto of = [](const std::vector<int>& times) {
    std::vector<Clock::time_point> points;
    for (const int t : times) points.push_back(at(t));
    const Straggler s = straggler(points);
    return std::pair(s.rank, s.lag.count());
  };
  REQUIRE(of({7}) == std::pair(0, Clock::rep{0}));
  REQUIRE(of({3, 10}) == std::pair(1, Clock::rep{7}));
  REQUIRE(of({30, 10, 12}) == std::pair(0, Clock::rep{18}));
  REQUIRE(of({5, 9, 40, 6}) == std::pair(2, Clock::rep{34}));
  REQUIRE_THROWS_WITH(of({}), ContainsSubstring("at least one rank"));
}

TEST_CASE("spans stay with the last steps and with those asked for", "[dist][ledger]") {
  Ledger ledger(100);
  ledger.keep_spans(3, 5);
  for (int i = 0; i < 30; ++i) {
    const StepScope scope(ledger);
    ledger.begin_step();
    const TimedScope span(SpanKind::forward);
  }
  for (const StepRecord& step : ledger.steps()) {
    const bool kept = (step.step >= 3 && step.step <= 5) || step.step >= 22;
    REQUIRE(step.spans.size() == (kept ? 1u : 0u));
    REQUIRE(step.whole.begin <= step.whole.end);
  }
  REQUIRE(ledger.find(4)->step == 4);
  REQUIRE(ledger.find(30) == nullptr);
  REQUIRE(ledger.find(-1) == nullptr);
}

TEST_CASE("a scope without a synchronised backward leaves the last record alone", "[dist][ledger]") {
  Ledger ledger;
  {
    const StepScope scope(ledger);
    const TimedScope span(SpanKind::data);
  }
  REQUIRE(ledger.steps().empty());
  {
    const StepScope scope(ledger);
    ledger.begin_step();
    const TimedScope span(SpanKind::optimizer);
  }
  {
    const StepScope scope(ledger);
    const TimedScope span(SpanKind::data);
  }
  REQUIRE(ledger.last().spans.size() == 1);
  REQUIRE(ledger.last().spans.front().kind == SpanKind::optimizer);
}

TEST_CASE("a step's record holds layers, optimizer, buckets and the plan's epoch", "[dist][ledger][ranks]") {
  test::for_each_world([](ProcessGroup& group) {
    const auto model = test::toy_mlp();
    Ddp ddp(model->named_parameters(), {}, group, {.plan = {.caps = {.bytes = 700, .first_bytes = 100}}});
    ddp.ledger().timeline().set_layers(model->number_layers());
    optim::Sgd optimizer(ddp.parameters(), 0.1);
    for (std::uint64_t step = 0; step < 3; ++step) train_step(ddp, *model, optimizer, step);

    const StepRecord& record = ddp.ledger().last();
    std::string names;
    for (const TimedSpan& span : record.spans) {
      names += str(name(span.kind), " ", ddp.ledger().timeline().name(span), ", ");
      require(record.whole.begin <= span.begin && span.end <= record.whole.end, "spans lie within the step");
    }
    require(
        names ==
            "forward forward, forward 0, forward 1, forward 2, backward backward, backward 2, backward 1, "
            "backward 0, other other, optimizer optimizer, ",
        names);
    require(record.step == 2 && record.plan_epoch == 0, "third step, first plan");
    int parameters = 0;
    for (const BucketRecord& bucket : record.buckets) {
      parameters += bucket.parameters;
      require(record.backward.begin <= bucket.first_ready && bucket.first_ready <= bucket.last_ready &&
                  bucket.last_ready <= record.backward.end && bucket.launch <= bucket.start &&
                  bucket.start <= bucket.end && bucket.end <= record.whole.end,
              "a bucket's times are in order");
    }
    require(record.buckets.size() > 1 && parameters == 4, "each parameter once");
    require(record.exposed() + record.hidden() == record.communication(), "exposed + hidden");
  });
}
