// SPDX-License-Identifier: MIT
// dist/scale.cpp - see the header.
#include "dist/scale.h"

#include <algorithm>
#include <atomic>

#include "core/parallel.h"
#include "kernels/ops.h"

namespace brigade::dist {

void scale(Tensor& t, double factor) {
  if (t.device() != Device{}) {
    if (factor == 0)
      runtime(t.device()).fill_zero(t.raw(), t.bytes());
    else
      ops::mul_(t, factor);
    return;
  }
  dispatch_floating("scale", t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    T* data = t.data<T>();
    const C by = static_cast<C>(factor);
    if (factor == 0)
      std::fill_n(data, t.numel(), static_cast<T>(C{0}));
    else
      for (std::int64_t i = 0; i < t.numel(); ++i) data[i] = static_cast<T>(static_cast<C>(data[i]) * by);
  });
}

// x * 0 is 0 for finite x and NaN otherwise, and a NaN stays in a sum: no branch per element.
bool all_finite(const Tensor& t) {
  if (t.device() != Device{}) {
    const Tensor copy = Tensor::empty(t.shape(), t.dtype());
    runtime(t.device()).copy_to_host(copy.raw(), t.raw(), t.bytes());
    return all_finite(copy);
  }
  std::atomic<bool> finite = true;
  dispatch_floating("all_finite", t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T* data = t.data<T>();
    parallel_for(t.numel(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
      constexpr std::int64_t kLanes = 32;  // Independent sums, so that the loop is one of vectors.
      C sums[kLanes] = {};
      std::int64_t i = begin;
      for (; i + kLanes <= end; i += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane)
          sums[lane] += static_cast<C>(data[i + lane]) * C{0};
      for (; i < end; ++i) sums[0] += static_cast<C>(data[i]) * C{0};
      for (const C sum : sums)
        if (sum != C{0}) finite = false;
    });
  });
  return finite;
}

}  // namespace brigade::dist
