// SPDX-License-Identifier: MIT
// dist/reduce_buffers.cpp - typed loops over blocks that stay in the first-level cache.
#include "dist/reduce_buffers.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/functor/combine.h"

namespace brigade::dist {
namespace {

using functor::divided;

template <Reduce op, class T>
T combine(T a, T b) {
  return functor::combine<reduction_of(op)>(a, b);
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

// Calls f(end) with what is done to each element at the end. Times the inverse of a power of two is the quotient bit
// for bit, and 512-bit divisions would take longer than memory does: 16 cycles for 16 elements.
template <Reduce op, class C, class F>
void with_end(int size, const F& f) {
  if constexpr (op != Reduce::mean)
    f([](C value) { return value; });
  else if (std::is_floating_point_v<C> && std::has_single_bit(static_cast<unsigned>(size)))
    f([inverse = divided(C{1}, size)](C value) { return static_cast<C>(value * inverse); });
  else
    f([size](C value) { return divided(value, size); });
}

// into[i] = end(from[0][i] op … op from[n-1][i]), n of them fixed so that a block is read once. `into` may be one of
// them: only ever at the same i, which the compiler has to be told to use vectors.
template <Reduce op, class C, class T, std::size_t n, class End>
void combine_sources(C* into, const T* const (&from)[n], std::int64_t count, const End& end) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    C value = static_cast<C>(from[0][i]);
    for (std::size_t k = 1; k < n; ++k) value = combine<op>(value, static_cast<C>(from[k][i]));
    into[i] = end(value);
  }
}

// One pass over memory however many ranks there are: a block is summed in cache, then written to all.
template <Reduce op, class T, class End>
void reduce_blocks(std::span<const std::byte* const> sources, std::span<std::byte* const> outs,
                   std::int64_t count, const End& end) {
  using C = compute_t<T>;
  constexpr std::int64_t kBlock = 1024;
  constexpr bool in_place = std::is_same_v<T, C>;
  C block[kBlock];
  const int size = static_cast<int>(sources.size());
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const auto source = [&](int k) {
      return reinterpret_cast<const T*>(sources[static_cast<std::size_t>(k)]) + begin;
    };
    const auto out = [&](std::byte* to) { return reinterpret_cast<T*>(to) + begin; };
    // With few sources the first target needs no detour. With more it may be one that is still to be read.
    C* sum = block;
    if constexpr (in_place)
      if (size <= 4) sum = out(outs[0]);
    if (size == 1)
      combine_sources<op, C, T>(sum, {source(0)}, n, end);
    else if (size == 2)
      combine_sources<op, C, T>(sum, {source(0), source(1)}, n, end);
    else if (size == 3)
      combine_sources<op, C, T>(sum, {source(0), source(1), source(2)}, n, end);
    else if (size == 4)
      combine_sources<op, C, T>(sum, {source(0), source(1), source(2), source(3)}, n, end);
    else
      combine_sources<op, C, T>(sum, {source(0), source(1), source(2), source(3)}, n,
                                [](C value) { return value; });
    for (int k = 4; k < size; ++k) {  // Now `sum` is `block`.
      const T* const next = source(k);
      for (std::int64_t i = 0; i < n; ++i) block[i] = combine<op>(block[i], static_cast<C>(next[i]));
    }
    if (size > 4)
      for (std::int64_t i = 0; i < n; ++i) block[i] = end(block[i]);
    for (std::byte* to : outs)
      if (static_cast<void*>(out(to)) != sum) std::copy(sum, sum + n, out(to));
  }
}

}  // namespace

void reduce_buffers(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, DType dtype,
                    std::int64_t count, Reduce op) noexcept {
  if (outs.empty()) return;
  dispatch(dtype, [&](auto tag) {
    dispatch_reduce(op, [&](auto constant) {
      constexpr Reduce kOp = decltype(constant)::value;
      using T = typename decltype(tag)::type;
      with_end<kOp, compute_t<T>>(static_cast<int>(sources.size()),
                                  [&](const auto& end) { reduce_blocks<kOp, T>(sources, outs, count, end); });
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
