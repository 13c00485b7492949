// SPDX-License-Identifier: MIT
// data/prefetch.h - makes batches on background threads, a few ahead of their use, and hands them out in
// order. Read before: data/batch.h. Read next: data/loader.h.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/batch.h"

namespace brigade::data {

/// Hands out make(first), make(first + 1), …, make(end - 1), in that order.
///
/// `make` is called from several threads at once, once for each number, and must be a function of
/// that number: then what next() returns does not depend on the number of threads. At most `depth`
/// batches exist ahead of the consumer. One thread at a time calls next(); the destructor waits for
/// calls of `make` that have begun.
class Prefetcher {
 public:
  using Make = std::function<Batch(std::int64_t)>;

  /// threads = 0 makes each batch inside next(). Throws Error if threads < 0 or depth < 1.
  Prefetcher(Make make, std::int64_t first, std::int64_t end, int threads, int depth);

  /// Blocks until the next batch is there; nothing after make(end - 1). An exception that make(n) threw is
  /// thrown in place of batch n, and again by every later call.
  std::optional<Batch> next();

 private:
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };
  void work(std::stop_token stop);

  const Make make_;
  const std::int64_t end_;
  std::mutex mutex_;  // Guards what follows, down to the threads.
  // Batch n waits in slot n % depth from when it is made until next() takes it. Invariant:
  // taken_ <= started_ <= taken_ + depth, so a slot never has two owners.
  std::vector<Slot> slots_;
  std::int64_t started_;
  std::int64_t taken_;
  std::condition_variable_any room_;   // taken_ moved: a worker may start another batch.
  std::condition_variable made_;       // a slot was filled.
  std::vector<std::jthread> threads_;  // Last: destroyed, that is stopped and joined, before what they use.
};

}  // namespace brigade::data
