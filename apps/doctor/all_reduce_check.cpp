// SPDX-License-Identifier: MIT
// apps/doctor/all_reduce_check.cpp - whether ranks can add up: data that differs between ranks, a result known
// beforehand, and how long it takes.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "apps/common/run_main.h"
#include "apps/doctor/checks.h"
#include "core/check.h"
#include "core/tensor.h"

namespace brigade::doctor {
namespace {

constexpr std::int64_t kCount = std::int64_t{1} << 20;  // 4 MiB: what a bucket has.
constexpr int kRuns = 7;

// Small integers, so that sums of floats are exact in any order.
float value(int rank, std::int64_t i) { return static_cast<float>((rank + 1) * (1 + i % 61)); }

std::string remedy() {
  return "Run again with nothing else computing; if it stays, report it with the output of doctor --json.";
}

}  // namespace

Finding check_all_reduce(dist::ProcessGroup& group) {
  const Storage memory = group.allocate_shared(kCount * static_cast<std::int64_t>(sizeof(float)));
  const Tensor t = Tensor::over(memory, {kCount}, DType::f32);
  std::vector<double> seconds;
  std::int64_t wrong = 0;
  for (int run = 0; run < kRuns; ++run) {
    float* const data = t.data<float>();
    for (std::int64_t i = 0; i < kCount; ++i) data[i] = value(group.rank(), i);
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    group.all_reduce(t, dist::Reduce::sum).wait();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    for (std::int64_t i = 0; i < kCount; ++i) {
      float expected = 0;
      for (int r = 0; r < group.size(); ++r) expected += value(r, i);
      if (data[i] != expected) ++wrong;
    }
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  const double median = seconds[kRuns / 2], ranks = group.size();
  // nccl-tests' bus bandwidth: independent of the number of ranks.
  const double bandwidth = static_cast<double>(t.bytes()) / median / 1e9 * 2 * (ranks - 1) / ranks;
  const std::string line = fmt::format("{} ranks ({}), 4 MiB in {:.2f} ms, bus bandwidth {:.1f} GB/s",
                                       group.size(), group.backend(), median * 1e3, bandwidth);
  if (wrong > 0) return fault("all_reduce", str(line, ", but ", wrong, " sums are wrong"), remedy());
  return ok("all_reduce", line + ", sums are right");
}

Finding check_threads_all_reduce(std::chrono::milliseconds timeout) {
  dist::LaunchOptions launch{.backend = "threads", .ranks = 2, .group = {.timeout = timeout}};
  // A thread that does not come back cannot be ended from outside.
  launch.on_stuck = [](const std::string& error) {
    apps::end_with_error("all_reduce on two threads: " + error);
  };
  std::mutex mutex;
  std::vector<Finding> findings;
  try {
    dist::run_ranks(launch, [&](dist::ProcessGroup& group) {
      Finding finding = check_all_reduce(group);
      std::lock_guard lock(mutex);
      findings.push_back(std::move(finding));
    });
  } catch (const std::exception& error) {
    return fault("all_reduce", str("two threads: ", error.what()), remedy());
  }
  return std::max(findings[0], findings[1],
                  [](const Finding& a, const Finding& b) { return a.status < b.status; });
}

}  // namespace brigade::doctor
