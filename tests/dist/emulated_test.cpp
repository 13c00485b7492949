// SPDX-License-Identifier: MIT
// tests/dist/emulated_test.cpp - the modelled network: its costs, its texts, and that ranks wait for it.
#include <cmath>

#include "dist/emulated/network_model.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using Catch::Matchers::WithinRel;

TEST_CASE("links, schedules and slow ranks read as they are written", "[dist][emulated]") {
  const Link link = parse_link("--net", "1gbit,50us");
  REQUIRE_THAT(link.latency_s, WithinRel(50e-6, 1e-12));
  REQUIRE_THAT(link.bytes_per_s, WithinRel(1e9 / 8, 1e-12));
  REQUIRE(parse_link("--net", "100mbit") == Link{0, 1e8 / 8});
  const auto schedule = parse_schedule("--net-schedule", "0:10gbit,200:1gbit", {1e-3, 1});
  REQUIRE(schedule == std::vector<NetworkModel::Change>{{0, {1e-3, 1e10 / 8}}, {200, {1e-3, 1e9 / 8}}});
  REQUIRE(parse_slow_rank("--slow-rank", "2:0.5") == std::pair{2, 0.5});
}

TEST_CASE("what is no link, schedule or rank is refused by the name of its flag", "[dist][emulated][error]") {
  for (const char* text : {"", "fast", "1", "-1gbit", "1gbit,50", "0gbit", "infgbit", "1gbit,50us,3"})
    REQUIRE_THROWS_WITH(parse_link("--net", text), ContainsSubstring("--net: needs a positive number"));
  for (const char* text : {"", "5:1gbit", "0:1gbit,0:2gbit", "0:1gbit,x:2gbit", "0"})
    REQUIRE_THROWS_WITH(parse_schedule("--net-schedule", text, {}), ContainsSubstring("--net-schedule"));
  for (const char* text : {"", "1", "1:0", "1:1.5", "x:0.5"})
    REQUIRE_THROWS_WITH(parse_slow_rank("--slow-rank", text), ContainsSubstring("--slow-rank"));
}

TEST_CASE("a ring all-reduce costs 2 (p-1) latencies and 2 (p-1)/p of its bytes", "[dist][emulated]") {
  NetworkModel model;
  model.links = {{0, {1e-3, 1e6}}, {10, {1e-3, 1e5}}};
  const auto seconds = [&](int ranks, std::int64_t step) {
    return 1e-9 * static_cast<double>(model.time("all_reduce", 4000, ranks, step, 0).count());
  };
  REQUIRE_THAT(seconds(4, 0), WithinRel(6e-3 + 1.5 * 4000 / 1e6, 1e-6));
  REQUIRE_THAT(seconds(4, 10), WithinRel(6e-3 + 1.5 * 4000 / 1e5, 1e-6));
  REQUIRE(seconds(1, 0) == 0);
  model.slow_ranks = {{2, 0.5}};
  REQUIRE_THAT(seconds(4, 0), WithinRel(6e-3 + 1.5 * 4000 / 5e5, 1e-6));
  REQUIRE_THAT(seconds(2, 0), WithinRel(2e-3 + 1.0 * 4000 / 1e6, 1e-6));  // Rank 2 is not in a group of two.
}

TEST_CASE("jitter is seeded, equal on all ranks, and averages out", "[dist][emulated]") {
  NetworkModel model;
  model.links = {{0, {1e-3, 1e6}}};
  model.jitter = 0.2;
  double sum = 0, squares = 0;
  for (int call = 0; call < 2000; ++call) {
    const double t = 1e-9 * static_cast<double>(model.time("all_reduce", 1000, 2, 0, call).count());
    REQUIRE(t == 1e-9 * static_cast<double>(model.time("all_reduce", 1000, 2, 0, call).count()));
    sum += t;
    squares += t * t;
  }
  const double mean = sum / 2000, deviation = std::sqrt(squares / 2000 - mean * mean);
  REQUIRE_THAT(mean, WithinRel(3e-3, 0.02));
  REQUIRE_THAT(deviation / mean, WithinRel(0.2, 0.1));
}

TEST_CASE("behind a modelled network results are the same and take at least the model's time",
          "[dist][emulated][ranks]") {
  NetworkModel model;
  model.links = {{0, {2e-3, 1e6}}, {1, {2e-3, 1e9}}};
  for (const char* algorithm : {"auto", "ring"}) {
    test::WorldOptions options;
    options.algorithm = algorithm;
    options.network = model;
    test::for_each_world(
        [&](ProcessGroup& group) {
          for (std::int64_t step = 0; step < 2; ++step) {
            group.begin_step(step);
            Tensor t = test::random({1000}, static_cast<std::uint64_t>(group.rank()), DType::i32);
            const Tensor expected = Tensor::zeros({1000}, DType::i32);
            for (int rank = 0; rank < group.size(); ++rank) {
              const Tensor theirs = test::random({1000}, static_cast<std::uint64_t>(rank), DType::i32);
              for (int i = 0; i < 1000; ++i)
                expected.data<std::int32_t>()[i] += theirs.data<std::int32_t>()[i];
            }
            const Work work = group.all_reduce(t, Reduce::sum);
            work.wait();
            test::require_same(t, expected, "sum");
            const auto took = work.times().end - work.times().start;
            const auto least = model.time("all_reduce", 4000, group.size(), step, 0);
            test::require(took >= least, "no earlier than the model allows");
          }
        },
        options);
  }
}
