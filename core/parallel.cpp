// SPDX-License-Identifier: MIT
// core/parallel.cpp - the only user of OpenMP pragmas outside kernels/cpu.
#include "core/parallel.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>

namespace brigade {

int available_cores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 1;
  return std::max(1, CPU_COUNT(&mask));
}

// omp_set_num_threads sets a per-thread variable, so thread ranks of one process do not disturb each other,
// and oneDNN, built on the same runtime, follows.
int num_threads() { return omp_get_max_threads(); }
void set_num_threads(int threads) { omp_set_num_threads(std::max(1, threads)); }
void mark_helper_thread() { omp_set_num_threads(1); }

namespace detail {

void parallel_ranges(std::int64_t count, std::int64_t grain, RangeFunction function, const void* context) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t pieces = std::min<std::int64_t>(num_threads(), count / grain);
  if (pieces <= 1 || omp_in_parallel()) {
    function(context, 0, count);
    return;
  }
  // Boundaries at multiples of 16 elements keep two threads off one cache line. A small grain says that an
  // element is a row or an image: rounding would leave 8 images on one thread.
  const std::int64_t unit = grain >= 16 ? 16 : 1;
  const auto cut = [&](std::int64_t k) { return k == pieces ? count : count * k / pieces / unit * unit; };
#pragma omp parallel for num_threads(static_cast <int>(pieces)) schedule(static, 1)
  for (std::int64_t i = 0; i < pieces; ++i) {
    if (cut(i) < cut(i + 1)) function(context, cut(i), cut(i + 1));
  }
}

}  // namespace detail
}  // namespace brigade
