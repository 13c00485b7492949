// SPDX-License-Identifier: MIT
// kernels/functor/combine.h - the scalar maths of reductions over ranks, for every device: what one rank's element and
// another's make. Used by dist/reduce_buffers.cpp on the CPU, by kernels/cuda/device/reduce_sources.cu on a GPU.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"
#include "kernels/parameters.h"

namespace brigade::functor {

template <class T>
BRIGADE_HD bool is_negative(T x) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  return std::bit_cast<Bits>(x) >> (8 * sizeof(T) - 1) != 0;
}

/// a op b; mean adds. Symmetric to the bit, signed zeros and NaN included: MPI may swap the operands on some ranks.
template <Reduction op, class T>
BRIGADE_HD T combine(T a, T b) {
  constexpr bool adds = op == Reduction::sum || op == Reduction::mean;
  if constexpr (std::is_same_v<T, bool>) {
    return adds || op == Reduction::max ? (a || b) : (a && b);
  } else if constexpr (std::is_integral_v<T> && (adds || op == Reduction::prod)) {
    // Unsigned 64 bits: integers wrap around, and signed overflow would be undefined.
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    return static_cast<T>(adds ? x + y : x * y);
  } else if constexpr (adds) {
    return a + b;
  } else if constexpr (op == Reduction::prod) {
    return a * b;
  } else if constexpr (std::is_integral_v<T>) {
    return (a < b) == (op == Reduction::min) ? a : b;
  } else {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    const bool a_below = a < b || (a == b && is_negative(a));
    return a_below == (op == Reduction::min) ? a : b;
  }
}

/// The end of a mean over `size` ranks. Integers truncate towards zero, as `/` does in C++. bool has no mean.
template <class T>
BRIGADE_HD T divided(T sum, int size) {
  if constexpr (std::is_same_v<T, bool>)
    return sum;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::int64_t>(sum) / size);
  else
    return sum / static_cast<T>(size);
}

}  // namespace brigade::functor
