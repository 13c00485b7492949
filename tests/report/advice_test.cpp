// SPDX-License-Identifier: MIT
// tests/report/advice_test.cpp - each sentence of advice against the figures that must lead to it.
#include "apps/report/advice.h"

#include "tests/support/test.h"

using namespace brigade;
using report::advice;
using report::BucketSummary;
using report::RunSummary;

namespace {

BucketSummary bucket(int index, double mib, double ready_ms, double start_ms, double end_ms,
                     double exposed_ms) {
  BucketSummary b;
  b.bucket = index;
  b.label = index == 2 ? "layer1 … conv1" : "";
  b.bytes = static_cast<std::int64_t>(mib * 1024 * 1024);
  b.parameter_count = 10;
  b.first_ready_ms = ready_ms - 10;
  b.ready_ms = ready_ms;
  b.launch_ms = ready_ms;
  b.start_ms = start_ms;
  b.end_ms = end_ms;
  b.exposed_ms = exposed_ms;
  b.latency = {end_ms - start_ms, end_ms - start_ms, end_ms - start_ms};
  return b;
}

// 2 ms a MiB; backward ends at 80 ms with bucket 2, which is 8 ms exposed.
RunSummary run() {
  RunSummary s;
  s.ranks = 4;
  s.sync = "bucketed";
  s.steps = 100;
  s.step_ms = {100, 110, 120};
  s.has_communication = true;
  s.comm_ms = 14;
  s.hidden_ms = 6;
  s.exposed_ms = 8;
  s.buckets = {bucket(0, 1, 40, 40, 42, 0), bucket(1, 2, 60, 60, 64, 0), bucket(2, 4, 80, 80, 88, 8)};
  return s;
}

}  // namespace

TEST_CASE("advice names the bucket that sticks out, with its share and what a smaller one would expose",
          "[report][advice]") {
  // In the model a tail of t MiB costs 2 t, and the 4 - t before it are ready 10 t/4 earlier and cost 2 (4 - t):
  // t = 1 MiB ends max(0, 6 - 2.5) + 2 = 5.5 ms late, t = 2 MiB max(0, 4 - 5) + 4 = 4 ms.
  const std::string text = advice(run());
  CHECK(text ==
        "Bucket 2 (layer1 … conv1) is 8.0 ms exposed (8 % of a step); a last bucket of 2.0 MiB would expose "
        "about 4.0 ms.");
}

TEST_CASE("advice estimates nothing where the model does not describe what was measured",
          "[report][advice]") {
  RunSummary s = run();
  s.buckets[2].exposed_ms = s.exposed_ms = 20;
  s.hidden_ms = 0;
  s.comm_ms = 20;
  CHECK(advice(s) ==
        "Bucket 2 (layer1 … conv1) is 20.0 ms exposed (20 % of a step); it is the last one, for which no "
        "backward is left to hide behind.");
  s.buckets.erase(s.buckets.begin());
  CHECK_THAT(advice(s), !ContainsSubstring("about"));
}

TEST_CASE("advice says how much is exposed beside the bucket it names", "[report][advice]") {
  RunSummary s = run();
  s.exposed_ms = 12;
  s.buckets[1].exposed_ms = 10;
  s.buckets[2].exposed_ms = 2;
  CHECK(advice(s) == "Bucket 1 is 10.0 ms exposed, the largest part of 12.0 ms (12 % of a step).");
}

TEST_CASE("advice says so if communication is hidden", "[report][advice]") {
  RunSummary s = run();
  s.hidden_ms = 13.5;
  s.exposed_ms = 0.5;
  CHECK(advice(s) ==
        "Communication is hidden: 13.5 ms of 14.0 ms run behind backward, and the 0.50 ms that are left are "
        "0.5 % of a step.");
}

TEST_CASE("advice blames a rank that is late, not the wire", "[report][advice][straggler]") {
  RunSummary s = run();
  s.buckets[2].last_rank = 3;
  s.buckets[2].last_share = 0.93;
  s.buckets[2].lag_ms = 6;
  CHECK(advice(s) ==
        "Rank 3 is last in 93 % of the steps, by 6.0 ms: most of the 8.0 ms that are exposed are waiting for "
        "it.");
  // Somebody is always last: now and then, or by little, is no straggler.
  s.buckets[2].last_share = 0.3;
  CHECK_THAT(advice(s), ContainsSubstring("Bucket 2"));
  s.buckets[2].last_share = 0.93;
  s.buckets[2].lag_ms = 1;
  CHECK_THAT(advice(s), ContainsSubstring("Bucket 2"));
}

TEST_CASE("advice tells waiting for a rank from communication, where the wire is idle meanwhile",
          "[report][advice][straggler]") {
  RunSummary s = run();
  s.exposed_ms = 2;
  s.waited_ms = 10;
  CHECK(advice(s) ==
        "A step stands still for 10.0 ms, of which communication is 2.0 ms: the rest is waiting for other "
        "ranks, not always the same.");
  s.straggler = 3;
  s.straggler_share = 0.75;
  s.straggler_ms = 9;
  CHECK_THAT(advice(s),
             ContainsSubstring("waiting for others, and rank 3 is last in 75 % of the steps, by 9.0 ms."));
  s.waited_ms = 2.5;
  CHECK_THAT(advice(s), !ContainsSubstring("stands still"));
}

TEST_CASE("advice tells a strategy that hides nothing from one that cannot", "[report][advice]") {
  RunSummary s = run();
  s.sync = "flat";
  s.hidden_ms = 0;
  s.exposed_ms = 14;
  CHECK_THAT(advice(s),
             ContainsSubstring("with --sync flat all 14.0 ms") && ContainsSubstring("--sync bucketed"));
  s.sync = "per_parameter";  // It sends from inside backward too: that is not what is missing.
  CHECK_THAT(advice(s), !ContainsSubstring("Nothing is hidden") && !ContainsSubstring("--sync bucketed"));
  s = run();
  s.comm_ms = 70;
  s.hidden_ms = 30;
  s.exposed_ms = 40;
  CHECK_THAT(advice(s),
             ContainsSubstring("Communication (70.0 ms) takes longer than all computation (60.0 ms)"));
}

TEST_CASE("advice claims nothing that the files do not say", "[report][advice]") {
  CHECK(advice(RunSummary{}) == "No step has ended: there is nothing to say about its time yet.");
  RunSummary s = run();
  s.ranks = 1;
  CHECK(advice(s) == "One rank has nobody to talk to: a step of 100 ms is all computation.");
  s = run();
  s.has_communication = false;
  CHECK(advice(s) == "A step takes 100 ms; no communication was recorded.");
  s = run();
  s.buckets.clear();
  CHECK_THAT(advice(s), ContainsSubstring("8.0 ms are exposed (8 % of a step); no bucket was recorded"));
}

TEST_CASE("advice on strategies names the fastest, and why", "[report][advice][strategies]") {
  RunSummary bucketed = run(), naive = run();
  naive.step_ms.p50 = 120;
  naive.exposed_ms = 28;
  const std::vector<report::NamedRun> two{{"naive", naive}, {"bucketed", bucketed}};
  CHECK(advice(two) ==
        "bucketed is fastest: a step takes 100 ms, with naive 120 ms, because 8.0 ms of communication are "
        "exposed "
        "instead of 28.0 ms.");
  RunSummary planned = bucketed;
  planned.step_ms.p50 = 100.5;
  const std::vector<report::NamedRun> three{{"planned", planned}, {"naive", naive}, {"bucketed", bucketed}};
  CHECK_THAT(advice(three), ContainsSubstring("bucketed and planned are fastest: a step takes 100 ms"));
}

TEST_CASE("advice on strategies gives no reason that the figures do not bear out",
          "[report][advice][strategies]") {
  RunSummary bucketed = run(), naive = run();
  naive.step_ms.p50 = 120;  // As much exposed: something else takes the time.
  const std::vector<report::NamedRun> slower{{"naive", naive}, {"bucketed", bucketed}};
  CHECK(advice(slower) ==
        "bucketed is fastest: a step takes 100 ms, with naive 120 ms; exposed communication does not "
        "explain the difference.");
  naive.step_ms.p50 = 100.4;
  const std::vector<report::NamedRun> same{{"naive", naive}, {"bucketed", bucketed}};
  CHECK(advice(same) == "All strategies take the same 100 ms a step, within 1 %.");
  const std::vector<report::NamedRun> one{{"bucketed", bucketed}};
  CHECK(advice(one) == advice(bucketed));
  CHECK_THAT(advice(std::vector<report::NamedRun>{{"naive", {}}}), ContainsSubstring("nothing to compare"));
}
