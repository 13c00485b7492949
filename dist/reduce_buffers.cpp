// SPDX-License-Identifier: MIT
// dist/reduce_buffers.cpp - typed loops over blocks that stay in the first-level cache.
#include "dist/reduce_buffers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace brigade::dist {
namespace {

// a op b. Symmetric to the bit, signed zeros and NaN included: MPI may swap the operands on some ranks.
template <Reduce op, class T>
T combine(T a, T b) {
  constexpr bool adds = op == Reduce::sum || op == Reduce::mean;
  if constexpr (std::is_same_v<T, bool>) {
    return adds || op == Reduce::max ? (a || b) : (a && b);
  } else if constexpr (std::is_integral_v<T> && (adds || op == Reduce::prod)) {
    // Unsigned 64 bits: integers wrap around, and signed overflow would be undefined.
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    return static_cast<T>(adds ? x + y : x * y);
  } else if constexpr (adds) {
    return a + b;
  } else if constexpr (op == Reduce::prod) {
    return a * b;
  } else if constexpr (std::is_integral_v<T>) {
    return op == Reduce::min ? std::min(a, b) : std::max(a, b);
  } else {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    const bool a_below = a < b || (a == b && std::signbit(a));
    return a_below == (op == Reduce::min) ? a : b;
  }
}

// Calls f(integral_constant<Reduce, op>).
template <class F>
void dispatch_reduce(Reduce op, const F& f) {
  switch (op) {
    case Reduce::sum:
      return f(std::integral_constant<Reduce, Reduce::sum>{});
    case Reduce::mean:
      return f(std::integral_constant<Reduce, Reduce::mean>{});
    case Reduce::min:
      return f(std::integral_constant<Reduce, Reduce::min>{});
    case Reduce::max:
      return f(std::integral_constant<Reduce, Reduce::max>{});
    case Reduce::prod:
      return f(std::integral_constant<Reduce, Reduce::prod>{});
  }
}

// Integers truncate towards zero, as `/` does in C++. bool has no mean (the group refuses it).
template <class T>
T divided(T sum, int size) {
  if constexpr (std::is_same_v<T, bool>)
    return sum;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::int64_t>(sum) / size);
  else
    return sum / static_cast<T>(size);
}

}  // namespace

void reduce_buffers(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, DType dtype,
                    std::int64_t count, Reduce op) noexcept {
  const int size = static_cast<int>(sources.size());
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    dispatch_reduce(op, [&](auto constant) {
      constexpr Reduce kOp = decltype(constant)::value;
      // One pass over memory however many ranks there are: a block is summed in cache, then written to all.
      constexpr std::int64_t kBlock = 1024;
      C sum[kBlock];
      for (std::int64_t begin = 0; begin < count; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, count - begin);
        const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
        for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<C>(first[i]);
        for (const std::byte* source : sources.subspan(1)) {
          const T* next = reinterpret_cast<const T*>(source) + begin;
          for (std::int64_t i = 0; i < n; ++i) sum[i] = combine<kOp>(sum[i], static_cast<C>(next[i]));
        }
        if constexpr (kOp == Reduce::mean)
          for (std::int64_t i = 0; i < n; ++i) sum[i] = divided(sum[i], size);
        for (std::byte* out : outs) {
          T* to = reinterpret_cast<T*>(out) + begin;
          for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sum[i]);
        }
      }
    });
  });
}

void accumulate(std::byte* into, const std::byte* from, DType dtype, std::int64_t count, Reduce op) noexcept {
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    T* a = reinterpret_cast<T*>(into);
    const T* b = reinterpret_cast<const T*>(from);
    dispatch_reduce(op, [&](auto constant) {
      for (std::int64_t i = 0; i < count; ++i)
        a[i] = static_cast<T>(combine<decltype(constant)::value>(static_cast<C>(a[i]), static_cast<C>(b[i])));
    });
  });
}

Tensor widened(const Tensor& t) {
  if (t.dtype() != DType::bf16 && t.dtype() != DType::f16) return t;
  Tensor wide = Tensor::empty({t.numel()}, DType::f32);
  dispatch_floating("widened", t.dtype(), [&](auto tag) {
    const auto* from = t.data<typename decltype(tag)::type>();
    std::copy(from, from + t.numel(), wide.data<float>());
  });
  return wide;
}

void finish(const Tensor& sum, Tensor& t, Reduce op, int size) noexcept {
  const bool same = sum.raw() == t.raw();
  if (same && op != Reduce::mean) return;
  dispatch(t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const C* from = same ? reinterpret_cast<const C*>(t.raw()) : sum.data<C>();
    T* to = t.data<T>();
    for (std::int64_t i = 0; i < t.numel(); ++i)
      to[i] = static_cast<T>(op == Reduce::mean ? divided(from[i], size) : from[i]);
  });
}

}  // namespace brigade::dist
