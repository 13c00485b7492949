// SPDX-License-Identifier: MIT
// core/parallel.h - the one OpenMP pool of a rank's compute thread.
// Communication and loader threads never enter it: on them parallel_for runs serially.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace brigade {

/// Cores in this process's affinity mask (what `mpirun --bind-to` and `taskset` left us).
int available_cores();

/// Threads that parallel_for and oneDNN use when called from this thread (at least 1).
int num_threads();

/// Sets num_threads() for the calling thread: a rank's compute thread calls this once.
void set_num_threads(int threads);

/// Declares the calling thread a helper (communication, loader): parallel_for and oneDNN run serially on it.
void mark_helper_thread();

namespace detail {
using RangeFunction = void (*)(const void* context, std::int64_t begin, std::int64_t end);
void parallel_ranges(std::int64_t count, std::int64_t grain, RangeFunction function, const void* context);
}  // namespace detail

/// Calls `body(begin, end)` on disjoint ranges that cover [0, count), on up to num_threads() threads.
/// There is at most one range per `grain` elements, so small work stays on the caller. The split depends on
/// count, grain and num_threads() only, hence results are repeatable. From a grain of 16 on ranges start at
/// multiples of 16 (elements of one cache line stay on one thread); smaller grains, as for rows or images,
/// are split evenly. Blocks. `body` must not throw.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  detail::parallel_ranges(
      count, grain,
      [](const void* context, std::int64_t begin, std::int64_t end) {
        (*static_cast<const Body*>(context))(begin, end);
      },
      std::addressof(body));
}

}  // namespace brigade
