// SPDX-License-Identifier: MIT
// tests/dist/failure_test.cpp - a rank that throws, never comes or gives up ends the others, with a message that
// says who and where. On threads: MPI cannot go on after an abort (tests/dist/mpi_test.cpp).
#include <atomic>
#include <stdexcept>
#include <thread>

#include "dist/threads/thread_transport.h"
#include "tests/dist/patterns.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::dist;
using namespace brigade::test;
using std::chrono::milliseconds;

namespace {

// The errors that the ranks' bodies threw, by rank, and what run_ranks made of them.
struct Outcome {
  std::vector<std::string> by_rank;
  std::string overall;
};

Outcome outcome_of(int size, milliseconds timeout, const std::function<void(ProcessGroup&)>& body) {
  Outcome outcome;
  outcome.by_rank.resize(static_cast<std::size_t>(size));
  outcome.overall = thrown_by([&] {
    run_ranks({.backend = "threads", .ranks = size, .group = {.timeout = timeout}}, [&](ProcessGroup& group) {
      std::exception_ptr error;
      outcome.by_rank[static_cast<std::size_t>(group.rank())] = thrown_by([&] {
        try {
          body(group);
        } catch (...) {
          error = std::current_exception();
          throw;
        }
      });
      if (error) std::rethrow_exception(error);
    });
  });
  return outcome;
}

Tensor ones() {
  return filled(10, DType::f32, [](std::int64_t) { return 1; });
}

}  // namespace

TEST_CASE("a rank that throws ends the others, and run_ranks rethrows its error with its type",
          "[dist][failure]") {
  for (const int size : {2, 3, 4}) {
    const Outcome outcome = outcome_of(size, milliseconds(10'000), [](ProcessGroup& group) {
      group.barrier().wait();
      if (group.rank() == 1) throw Error("no such file: data.bin");
      group.all_reduce(ones(), Reduce::sum, "bucket 0").wait();
    });
    REQUIRE(outcome.overall == str("Error: [rank 1/", size, "] no such file: data.bin"));
    for (int r = 0; r < size; ++r) {
      if (r == 1) continue;
      INFO("rank " << r);
      REQUIRE_THAT(
          outcome.by_rank[static_cast<std::size_t>(r)],
          ContainsSubstring("CommError: rank " + std::to_string(r)) &&
              ContainsSubstring("all_reduce(sum) f32 x 10, sequence 1, bucket 0") &&
              ContainsSubstring("rank 1/" + std::to_string(size) + " failed: no such file: data.bin"));
    }
  }
}

TEST_CASE("a foreign exception keeps its type", "[dist][failure]") {
  REQUIRE_THROWS_AS(run_ranks({.backend = "threads", .ranks = 2},
                              [](ProcessGroup& group) {
                                if (group.rank() == 0) throw std::out_of_range("index");
                                group.barrier().wait();
                              }),
                    std::out_of_range);
}

TEST_CASE("when a rank never arrives the others say who did, within the time-out", "[dist][failure]") {
  for (const int size : {2, 3, 4}) {
    std::atomic<int> ended{0};
    const auto begin = Clock::now();
    const Outcome outcome = outcome_of(size, milliseconds(200), [&](ProcessGroup& group) {
      group.barrier().wait();
      if (group.rank() == 1) {
        while (ended < size - 1) std::this_thread::sleep_for(milliseconds(5));
        return;
      }
      struct Count {
        std::atomic<int>& n;
        ~Count() { ++n; }
      } count{ended};
      group.all_reduce(ones(), Reduce::mean, "bucket 2 (layer4.1.conv2.weight …)").wait();
    });
    REQUIRE(Clock::now() - begin < std::chrono::seconds(5));
    const std::string there = size == 2 ? "rank 0" : size == 3 ? "ranks 0, 2" : "ranks 0, 2, 3";
    REQUIRE_THAT(
        outcome.overall,
        ContainsSubstring("all_reduce(mean) f32 x 10, sequence 1, bucket 2 (layer4.1.conv2.weight …)") &&
            ContainsSubstring("not done within 200 ms") &&
            ContainsSubstring("arrived: " + there + "; missing: rank 1"));
    for (int r = 0; r < size; ++r)
      if (r != 1)
        REQUIRE_THAT(outcome.by_rank[static_cast<std::size_t>(r)], ContainsSubstring("missing: rank 1"));
  }
}

TEST_CASE("the time-out holds in a wait that runs calls itself, for those ahead of its own too",
          "[dist][failure]") {
  std::atomic<bool> ended{false};
  const auto begin = Clock::now();
  const Outcome outcome = outcome_of(2, milliseconds(300), [&](ProcessGroup& group) {
    // After many waits that have helped, the stream's own thread naps.
    for (int i = 0; i < 50; ++i) group.barrier().wait();
    if (group.rank() == 1) {
      while (!ended) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    const Work first = group.all_reduce(ones(), Reduce::sum, "bucket 4");
    const std::string error = thrown_by([&] { group.all_reduce(ones(), Reduce::sum, "bucket 5").wait(); });
    ended = true;
    throw CommError(error);
  });
  REQUIRE(Clock::now() - begin < std::chrono::seconds(5));
  REQUIRE_THAT(outcome.overall,
               ContainsSubstring("bucket 5") &&
                   ContainsSubstring("not done within 300 ms; arrived: rank 0; missing: rank 1"));
}

TEST_CASE("a message that never comes names its sender", "[dist][failure]") {
  std::atomic<bool> ended{false};
  const Outcome outcome = outcome_of(2, milliseconds(200), [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      const std::string error = thrown_by([&] { group.recv(ones(), 1).wait(); });
      ended = true;
      throw CommError(error);
    }
    while (!ended) std::this_thread::sleep_for(milliseconds(5));
  });
  REQUIRE_THAT(outcome.overall, ContainsSubstring("recv f32 x 10 from rank 1") &&
                                    ContainsSubstring("waiting for a message from rank 1"));
}

TEST_CASE("a message of another dtype or size than expected is a CommError naming both", "[dist][failure]") {
  const Outcome outcome = outcome_of(2, milliseconds(5'000), [&](ProcessGroup& group) {
    if (group.rank() == 0)
      group.send(ones(), 1).wait();
    else
      group.recv(Tensor::zeros({10}, DType::f64), 0).wait();
  });
  REQUIRE_THAT(outcome.overall, ContainsSubstring("CommError: ") &&
                                    ContainsSubstring("rank 0 sent f32 x 10, rank 1 receives f64 x 10"));
}

TEST_CASE("abort from another thread ends a blocked call with its reason, and all later calls",
          "[dist][failure]") {
  const Outcome outcome = outcome_of(2, milliseconds(20'000), [](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      group.abort("operator pressed stop");
      group.barrier().wait();
      return;
    }
    std::string first = thrown_by([&] { group.barrier().wait(); });
    require_contains(first, "operator pressed stop");
    require_contains(thrown_by([&] { group.barrier().wait(); }), "not run; an earlier failure");
    throw CommError(first);
  });
  REQUIRE_THAT(outcome.by_rank[0], ContainsSubstring("operator pressed stop"));
  REQUIRE_THAT(outcome.by_rank[1], ContainsSubstring("operator pressed stop"));
}

TEST_CASE("works queued behind a failed one fail with its reason", "[dist][failure]") {
  const Outcome outcome = outcome_of(2, milliseconds(5'000), [](ProcessGroup& group) {
    std::vector<Work> works;
    for (int i = 0; i < 5; ++i)
      works.push_back(group.all_reduce(Tensor::zeros({i == 1 ? 5 + group.rank() : 5}), Reduce::sum));
    works[0].wait();
    for (std::size_t i = 1; i < works.size(); ++i)
      require_contains(thrown_by([&] { works[i].wait(); }), "all_reduce(sum) f32 x 6");
  });
  REQUIRE(outcome.overall == "");  // A mismatch is known to all: they close in order.
}

TEST_CASE("a rank that closes while another still calls is a mismatch, not a hang", "[dist][failure]") {
  const Outcome outcome = outcome_of(2, milliseconds(5'000), [](ProcessGroup& group) {
    if (group.rank() == 1) group.barrier().wait();
  });
  REQUIRE_THAT(outcome.overall, ContainsSubstring("rank 0 calls close, rank 1 calls barrier"));
}

TEST_CASE("leaving without closing ends the peers", "[dist][failure]") {
  // A group destroyed by unwinding, without run_ranks around it.
  const auto hub = make_hub(2);
  std::string error;
  std::thread peer([&] {
    ProcessGroup group([&] { return make_thread_transport(hub, 0); });
    error = thrown_by([&] { group.barrier().wait(); });
  });
  {
    ProcessGroup group([&] { return make_thread_transport(hub, 1); });
  }
  peer.join();
  REQUIRE_THAT(error, ContainsSubstring("rank 1/2 left without closing the group"));
}
