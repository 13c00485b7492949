// SPDX-License-Identifier: MIT
// tests/core/parallel_test.cpp - how parallel_for splits its range.
#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/test.h"

using namespace brigade;

namespace {

struct Range {
  std::int64_t begin, end;
  std::thread::id thread;
};

/// The ranges of one call, sorted.
std::vector<Range> split(std::int64_t count, std::int64_t grain) {
  std::mutex mutex;
  std::vector<Range> ranges;
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    ranges.push_back({begin, end, std::this_thread::get_id()});
  });
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

/// Restores the thread count of the test's own thread.
struct Threads {
  int before = num_threads();
  explicit Threads(int threads) { set_num_threads(threads); }
  ~Threads() { set_num_threads(before); }
};

}  // namespace

TEST_CASE("parallel_for covers every index exactly once in non-empty ranges", "[core][parallel]") {
  for (int threads : {1, 2, 3, 5}) {
    const Threads scope(threads);
    for (std::int64_t count : {0, 1, 2, 7, 15, 16, 17, 31, 100, 1023, 4096})
      for (std::int64_t grain : {0, 1, 3, 16, 64, 5000}) {
        CAPTURE(threads, count, grain);
        std::int64_t next = 0;
        for (const Range& range : split(count, grain)) {
          REQUIRE(range.begin == next);
          REQUIRE(range.end > range.begin);
          next = range.end;
        }
        REQUIRE(next == count);
      }
  }
}

TEST_CASE("parallel_for uses no more ranges than threads, nor than whole grains", "[core][parallel]") {
  const Threads scope(3);
  REQUIRE(split(1000, 1).size() == 3);
  REQUIRE(split(1000, 500).size() == 2);
  REQUIRE(split(1000, 501).size() == 1);
  REQUIRE(split(1000, 5000).size() == 1);
}

TEST_CASE("a small grain splits few indices evenly", "[core][parallel]") {
  const Threads scope(2);
  const auto ranges = split(8, 1);  // 8 images on 2 threads: not 0 and 8.
  REQUIRE(ranges.size() == 2);
  REQUIRE(ranges[0].end == 4);
}

TEST_CASE("ranges of a large grain begin on whole cache lines of floats", "[core][parallel]") {
  const Threads scope(3);
  const auto ranges = split(1001, 100);
  REQUIRE(ranges.size() == 3);
  for (const Range& range : ranges) REQUIRE(range.begin % 16 == 0);
}

TEST_CASE("the split is the same at every call", "[core][parallel]") {
  const Threads scope(3);
  const auto first = split(12345, 10);
  for (int round = 0; round < 20; ++round) {
    const auto again = split(12345, 10);
    REQUIRE(again.size() == first.size());
    for (std::size_t i = 0; i < first.size(); ++i)
      REQUIRE((again[i].begin == first[i].begin && again[i].end == first[i].end));
  }
}

TEST_CASE("a helper thread and a nested call run serially where they are", "[core][parallel]") {
  const Threads scope(4);
  std::size_t pieces = 0;
  std::thread::id here, inside;
  std::thread([&] {
    mark_helper_thread();
    const auto ranges = split(10000, 1);
    pieces = ranges.size();
    here = std::this_thread::get_id();
    inside = ranges[0].thread;
  }).join();
  REQUIRE(pieces == 1);
  REQUIRE(inside == here);

  std::atomic<bool> serial = true;
  parallel_for(4, 1, [&](std::int64_t, std::int64_t) {
    if (split(10000, 1).size() != 1) serial = false;
  });
  REQUIRE(serial);
}

TEST_CASE("the thread count belongs to the calling thread", "[core][parallel]") {
  const Threads scope(3);
  int other = 0;
  std::thread([&] {
    set_num_threads(2);
    other = num_threads();
  }).join();
  REQUIRE(other == 2);
  REQUIRE(num_threads() == 3);
  set_num_threads(0);
  REQUIRE(num_threads() == 1);
  REQUIRE(available_cores() >= 1);
}
