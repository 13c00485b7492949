// SPDX-License-Identifier: MIT
// tests/support/mutants.h - strategies with one mistake each: tests of tests must find every one of them.
// Read before: dist/strategies/bucketed.h, which makes none. Used by tests/dist/ and tests/integration/.
#pragma once

#include <vector>

#include "dist/grad_sync.h"

namespace brigade::test {

/// Launches what is complete, in whatever order that happens.
class CompletionOrder final : public dist::GradSync {
 public:
  explicit CompletionOrder(dist::BucketReducer& reducer) : reducer_(reducer) {}
  void begin() override {
    launched_.assign(static_cast<std::size_t>(reducer_.bucket_count()), false);
    on_grad_ready();
  }
  void on_grad_ready() override {
    for (int b = 0; b < reducer_.bucket_count(); ++b) {
      if (!reducer_.complete(b) || launched_[static_cast<std::size_t>(b)]) continue;
      launched_[static_cast<std::size_t>(b)] = true;
      reducer_.launch(b);
    }
  }
  void finish() override {}

 private:
  dist::BucketReducer& reducer_;
  std::vector<bool> launched_;
};

/// Moves through the plan like BucketedSync; a Mistake says when a bucket may be launched, and which buckets then are.
template <class Mistake>
class WrongCursor final : public dist::GradSync {
 public:
  explicit WrongCursor(dist::BucketReducer& reducer) : reducer_(reducer) {}
  void begin() override {
    next_ = 0;
    on_grad_ready();
  }
  void on_grad_ready() override {
    for (; next_ < reducer_.bucket_count() && Mistake::may_launch(reducer_, next_); ++next_)
      for (const int bucket : Mistake::launched_at(reducer_, next_)) reducer_.launch(bucket);
  }
  void finish() override {}

 private:
  dist::BucketReducer& reducer_;
  int next_ = 0;
};

/// No mistake yet.
struct InOrder {
  static bool may_launch(const dist::BucketReducer& reducer, int bucket) { return reducer.complete(bucket); }
  static std::vector<int> launched_at(const dist::BucketReducer&, int bucket) { return {bucket}; }
};
struct ForgetsLast : InOrder {
  static std::vector<int> launched_at(const dist::BucketReducer& reducer, int bucket) {
    return bucket + 1 < reducer.bucket_count() ? std::vector<int>{bucket} : std::vector<int>{};
  }
};
struct LaunchesLastTwice : InOrder {
  static std::vector<int> launched_at(const dist::BucketReducer& reducer, int bucket) {
    return std::vector<int>(bucket + 1 == reducer.bucket_count() ? 2 : 1, bucket);
  }
};
struct DoesNotLook : InOrder {
  static bool may_launch(const dist::BucketReducer&, int) { return true; }
};
struct WaitsForAll : InOrder {
  static bool may_launch(const dist::BucketReducer& reducer, int) { return reducer.pending() == 0; }
};
struct SwapsLastTwo : InOrder {
  static bool may_launch(const dist::BucketReducer& reducer, int bucket) {
    return reducer.complete(bucket) && (bucket + 2 != reducer.bucket_count() || reducer.complete(bucket + 1));
  }
  static std::vector<int> launched_at(const dist::BucketReducer& reducer, int bucket) {
    const int last = reducer.bucket_count() - 1;
    return {bucket == last ? last - 1 : bucket == last - 1 ? last : bucket};
  }
};

}  // namespace brigade::test
