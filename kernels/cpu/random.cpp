// SPDX-License-Identifier: MIT
// kernels/cpu/random.cpp - random tensors: element i in row-major order is number i of its sequence (core/rng.h).
// The values are those of uniform_at and normal_at. Read next: kernels/cpu/random_blocks.h.
#include <algorithm>

#include "kernels/cpu/basic.h"
#include "kernels/cpu/random_blocks.h"
#include "kernels/cpu/walk.h"
#include "kernels/functor/convert.h"

namespace brigade::cpu {
namespace {

using Blocks = void (*)(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, int count, float* out);

// Calls use(i, number) for numbers position, position + 1, … of a sequence, i from 0.
template <Blocks blocks, class Use>
void for_each_number(std::uint64_t seed, std::uint64_t stream, std::int64_t position, std::int64_t count,
                     const Use& use) {
  constexpr std::int64_t kNumbers = 4 * kRandomBlocks;
  float numbers[kNumbers];
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t block = (position + i) / 4, skipped = (position + i) % 4;
    const std::int64_t taken = std::min(count - i, kNumbers - skipped);
    blocks(seed, stream, static_cast<std::uint64_t>(block), static_cast<int>((skipped + taken + 3) / 4),
           numbers);
    for (std::int64_t k = 0; k < taken; ++k) use(i + k, numbers[skipped + k]);
    i += taken;
  }
}

template <Blocks blocks>
void generate(std::uint64_t seed, std::uint64_t stream, double shift, double scale, Tensor& out) {
  dispatch_floating("random", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = out.data<T>();
    parallel_runs(plan_walk(Order::row_major, out), [=](std::int64_t position, const std::int64_t* at,
                                                        std::int64_t count, const std::int64_t* stride) {
      const std::int64_t begin = at[0], step = stride[0];
      for_each_number<blocks>(seed, stream, position, count, [=](std::int64_t i, float number) {
        to[begin + i * step] = convert<T>(shift + scale * static_cast<double>(number));
      });
    });
  });
}

}  // namespace

void random_uniform(std::uint64_t seed, std::uint64_t stream, double low, double high, Tensor& out) {
  generate<uniform_blocks>(seed, stream, low, high - low, out);
}

void random_normal(std::uint64_t seed, std::uint64_t stream, double mean, double std, Tensor& out) {
  generate<normal_blocks>(seed, stream, mean, std, out);
}

void dropout(std::uint64_t seed, std::uint64_t stream, double p, const Tensor& x, Tensor& out) {
  dispatch_floating("dropout", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T* from = x.data<T>();
    T* to = out.data<T>();
    const C scale = static_cast<C>(1 / (1 - p));
    parallel_runs(plan_walk(Order::row_major, out, x), [=](std::int64_t position, const std::int64_t* at,
                                                           std::int64_t count, const std::int64_t* stride) {
      for_each_number<uniform_blocks>(seed, stream, position, count, [=](std::int64_t i, float number) {
        const bool keep = static_cast<double>(number) >= p;
        const C value = convert<C>(from[at[1] + i * stride[1]]);
        to[at[0] + i * stride[0]] = convert<T>(keep ? value * scale : C{0});
      });
    });
  });
}

}  // namespace brigade::cpu
