// SPDX-License-Identifier: MIT
// apps/bench/zero_copy.cpp - see the header.
#include "apps/bench/zero_copy.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <csignal>
#include <new>

#include "core/check.h"
#include "core/stream.h"

namespace brigade::apps {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
constexpr int kMaxIterations = 4096;

// A number in shared memory that processes wait on. Looks a while before it sleeps: peers on other cores are
// microseconds away. With more ranks than cores a short look costs little.
class Gate {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void advance() {
    value_.fetch_add(1, std::memory_order_acq_rel);
    syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  void wait_past(std::uint32_t old, int looks) const {
    for (int i = 0; i < looks; ++i)
      if (value() != old) return;
    while (value() == old) syscall(SYS_futex, &value_, FUTEX_WAIT, old, nullptr, nullptr, 0);
  }

 private:
  std::atomic<std::uint32_t> value_{0};
};

constexpr int kLooks = 2000;

}  // namespace

struct ZeroCopyBaseline::Shared {
  alignas(64) Gate command, done;
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) Gate meeting;
  std::int64_t bytes = 0;
  int warmup = 0, iterations = 0;
  double times[kMaxIterations] = {};

  void meet(int ranks) {
    const std::uint32_t round = meeting.value();
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < ranks) {
      meeting.wait_past(round, kLooks);
      return;
    }
    arrived.store(0, std::memory_order_relaxed);
    meeting.advance();
  }
};

ZeroCopyBaseline::ZeroCopyBaseline(int ranks, std::int64_t max_bytes)
    : ranks_(ranks), max_bytes_((max_bytes + kHugePage - 1) / kHugePage * kHugePage) {
  mapped_ = kHugePage + ranks_ * max_bytes_;
  void* memory = mmap(nullptr, static_cast<std::size_t>(mapped_), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BRIGADE_CHECK(memory != MAP_FAILED, "--zero-copy-baseline: the system has no ", mapped_, " bytes to share");
  static_assert(sizeof(Shared) < kHugePage);
  shared_ = new (memory) Shared;
  for (int rank = 0; rank < ranks_; ++rank) {
    const pid_t child = fork();
    BRIGADE_CHECK(child >= 0, "--zero-copy-baseline: cannot start a process");
    if (child == 0) serve(rank);
    children_.push_back(child);
  }
}

ZeroCopyBaseline::~ZeroCopyBaseline() {
  for (const pid_t child : children_) kill(child, SIGKILL);
  for (const pid_t child : children_) waitpid(child, nullptr, 0);
  munmap(shared_, static_cast<std::size_t>(mapped_));
}

float* ZeroCopyBaseline::values(int rank) const {
  return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(shared_) + kHugePage + rank * max_bytes_);
}

void ZeroCopyBaseline::all_reduce(int rank, std::int64_t count) {
  shared_->meet(ranks_);
  // Slices begin on cache lines, so that no two processes write to one.
  const auto cut = [&](int r) { return r == ranks_ ? count : count * r / ranks_ / 16 * 16; };
  const std::int64_t begin = cut(rank), end = cut(rank + 1);
  if (ranks_ == 2) {
    float *const a = values(0), *const b = values(1);
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const float sum = a[i] + b[i];
      a[i] = sum;
      b[i] = sum;
    }
  } else {
    // Blocks that stay in cache while all ranks' numbers are added to the first's, and the sum is written to all.
    constexpr std::int64_t kBlock = 4096;
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const std::int64_t n = std::min(kBlock, end - at);
      float* const sum = values(0) + at;
      for (int r = 1; r < ranks_; ++r) {
        const float* const x = values(r) + at;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
      }
      for (int r = 1; r < ranks_; ++r) std::copy(sum, sum + n, values(r) + at);
    }
  }
  shared_->meet(ranks_);
}

void ZeroCopyBaseline::serve(int rank) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::fill_n(values(rank), max_bytes_ / 4, 0.0F);  // Touched by whom it belongs to.
  for (std::uint32_t command = 0;; ++command) {
    shared_->command.wait_past(command, 0);
    const std::int64_t count = shared_->bytes / 4;
    for (int i = -shared_->warmup; i < shared_->iterations; ++i) {
      const auto begin = Clock::now();
      all_reduce(rank, count);
      if (rank == 0 && i >= 0)
        shared_->times[i] = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }
    shared_->meet(ranks_);
    if (rank == 0) shared_->done.advance();
  }
}

std::vector<double> ZeroCopyBaseline::measure(std::int64_t bytes, int warmup, int iterations) {
  BRIGADE_CHECK(bytes <= max_bytes_ && iterations <= kMaxIterations, "zero-copy baseline: at most ",
                max_bytes_, " bytes and ", kMaxIterations, " iterations; got ", bytes, " and ", iterations);
  shared_->bytes = bytes;
  shared_->warmup = warmup;
  shared_->iterations = iterations;
  const std::uint32_t before = shared_->done.value();
  shared_->command.advance();
  shared_->done.wait_past(before, 0);
  return {shared_->times, shared_->times + iterations};
}

}  // namespace brigade::apps
