// SPDX-License-Identifier: MIT
// dist/gradient_memory.cpp - see the header.
#include "dist/gradient_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace brigade::dist {
namespace {

using Interval = std::pair<const std::byte*, const std::byte*>;

void append(std::vector<Interval>& out, std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors) out.push_back({t.raw(), t.raw() + t.bytes()});
}

// Bytes in at least one of them.
std::int64_t covered(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::int64_t sum = 0;
  const std::byte* end = nullptr;
  for (const Interval& i : intervals) {
    const std::byte* const begin = end == nullptr ? i.first : std::max(i.first, end);
    if (i.second <= begin) continue;
    sum += i.second - begin;
    end = i.second;
  }
  return sum;
}

}  // namespace

GradientMemory gradient_memory(std::span<const Tensor> gradients, std::span<const Tensor> buckets) {
  std::vector<Interval> of_gradients, of_buckets;
  append(of_gradients, gradients);
  append(of_buckets, buckets);
  GradientMemory memory{.gradients = covered(of_gradients), .buckets = covered(of_buckets)};
  of_gradients.insert(of_gradients.end(), of_buckets.begin(), of_buckets.end());
  memory.together = covered(std::move(of_gradients));
  return memory;
}

std::string GradientMemory::text() const {
  constexpr double kMiB = 1024.0 * 1024.0;
  return fmt::format("gradients {:.3f} MiB, in buckets of {:.3f} MiB: together {:.4f} times the gradients",
                     static_cast<double>(gradients) / kMiB, static_cast<double>(buckets) / kMiB, ratio());
}

}  // namespace brigade::dist
