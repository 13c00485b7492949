// SPDX-License-Identifier: MIT
// apps/bench/zero_copy.h - the least that an all-reduce between processes of one host can cost, written for the
// measurement: memory that all of them map, where each adds up its slice of everybody's numbers in place and writes it
// to all, between two meetings. No checks, no errors, f32 sums only. Used by bench_all_reduce.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace brigade::apps {

class ZeroCopyBaseline {
 public:
  /// Forks `ranks` processes, which sleep until measured: to be called before any thread is started.
  ZeroCopyBaseline(int ranks, std::int64_t max_bytes);
  ~ZeroCopyBaseline();  ///< Ends them.
  ZeroCopyBaseline(const ZeroCopyBaseline&) = delete;
  ZeroCopyBaseline& operator=(const ZeroCopyBaseline&) = delete;

  /// Microseconds of each of `iterations` all-reduces of `bytes`, as rank 0 sees them. Blocks, asleep.
  std::vector<double> measure(std::int64_t bytes, int warmup, int iterations);

 private:
  struct Shared;
  [[noreturn]] void serve(int rank);
  void all_reduce(int rank, std::int64_t count);
  float* values(int rank) const;

  int ranks_;
  std::int64_t max_bytes_;
  Shared* shared_;  // Followed by max_bytes_ a rank.
  std::int64_t mapped_;
  std::vector<pid_t> children_;
};

}  // namespace brigade::apps
