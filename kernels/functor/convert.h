// SPDX-License-Identifier: MIT
// kernels/functor/convert.h - one conversion between any two element types, for every device.
// Read before: core/dtype.h. Read next: kernels/functor/elementwise.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

namespace brigade {

template <class T>
inline constexpr bool is_half_v = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

/// The type long sums are kept in: double for every float, i64 for every integer and bool.
template <class T>
using wide_t = std::conditional_t<std::is_floating_point_v<compute_t<T>>, double, std::int64_t>;

/// `value` as To. Floats round to nearest even (16-bit ones by way of float), integers wrap, bool is `value
/// != 0`, and a float becomes the integer next to it towards zero (unspecified outside the integer's range).
template <class To, class From>
BRIGADE_HD To convert(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (is_half_v<From>)
    return convert<To>(static_cast<float>(value));
  else if constexpr (is_half_v<To>)
    return To(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, bool>)
    return value != From{0};
  else
    return static_cast<To>(value);
}

}  // namespace brigade
