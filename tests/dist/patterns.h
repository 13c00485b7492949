// SPDX-License-Identifier: MIT
// tests/dist/patterns.h - rank-dependent inputs whose sums and products over four ranks are exact in all nine
// dtypes, so that every backend and algorithm must give the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "dist/transport.h"

namespace brigade::test {

// Race checking makes a loop fifty times slower, and finds no more in a million elements than in a few thousand.
#if defined(__SANITIZE_THREAD__)
inline constexpr std::int64_t kLargest = 1 << 14;
#else
inline constexpr std::int64_t kLargest = 1 << 20;
#endif
inline constexpr std::array<std::int64_t, 5> kSizes{0, 1, 7, 1023, kLargest};

/// Element i of rank's input: 0 … 3, other than any other rank's at most places.
inline int pattern_at(int rank, std::int64_t i) {
  return static_cast<int>((static_cast<std::uint64_t>(i) * 5 + static_cast<std::uint64_t>(i) / 7 +
                           static_cast<std::uint64_t>(rank) * 3) &
                          3u);
}

/// n elements value(0), value(1), …, converted to dtype (bool: odd).
template <class F>
Tensor filled(std::int64_t n, DType dtype, const F& value) {
  Tensor t = Tensor::empty({n}, dtype);
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = t.data<T>();
    for (std::int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, bool>)
        data[i] = (value(i) & 1) != 0;
      else
        data[i] = static_cast<T>(compute_t<T>(value(i)));
    }
  });
  return t;
}

/// rank's input of n elements, starting at element `begin` of its pattern.
inline Tensor pattern(int rank, std::int64_t n, DType dtype, std::int64_t begin = 0) {
  return filled(n, dtype, [=](std::int64_t i) { return pattern_at(rank, begin + i); });
}

/// The reduction over ranks 0 … size-1 of elements [begin, begin + n), computed without the code under test.
inline Tensor reduced(int size, std::int64_t n, DType dtype, dist::Reduce op, std::int64_t begin = 0) {
  using dist::Reduce;
  if (op == Reduce::mean && is_floating(dtype)) {
    Tensor sum = reduced(size, n, DType::f64, Reduce::sum, begin);
    Tensor t = Tensor::empty({n}, dtype);
    dispatch_floating("reduced", dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::int64_t i = 0; i < n; ++i)
        t.data<T>()[i] = static_cast<T>(static_cast<compute_t<T>>(sum.data<double>()[i] / size));
    });
    return t;
  }
  return filled(n, dtype, [=](std::int64_t i) {
    int total = pattern_at(0, begin + i);
    if (dtype == DType::boolean) total &= 1;
    for (int r = 1; r < size; ++r) {
      int next = pattern_at(r, begin + i);
      if (dtype == DType::boolean) {
        next &= 1;
        total = op == Reduce::sum || op == Reduce::max ? (total | next) : (total & next);
      } else {
        switch (op) {
          case Reduce::sum:
          case Reduce::mean:
            total += next;
            break;
          case Reduce::prod:
            total *= next;
            break;
          case Reduce::min:
            total = std::min(total, next);
            break;
          case Reduce::max:
            total = std::max(total, next);
            break;
        }
      }
    }
    return op == Reduce::mean ? total / size : total;
  });
}

}  // namespace brigade::test
