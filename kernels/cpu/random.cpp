// SPDX-License-Identifier: MIT
// kernels/cpu/random.cpp - random tensors: element i in row-major order is number i of its sequence (core/rng.h).
// One Philox block yields four numbers, so neighbours share it; the values are those of uniform_at and normal_at.
#include "core/rng.h"
#include "kernels/cpu/basic.h"
#include "kernels/cpu/walk.h"
#include "kernels/functor/convert.h"

namespace brigade::cpu {
namespace {

// Four uniform, or four normal, numbers at once.
struct Uniforms {
  static std::array<float, 4> block(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
    const auto words = philox(seed, stream, block);
    return {uniform01(words[0]), uniform01(words[1]), uniform01(words[2]), uniform01(words[3])};
  }
};
struct Normals {
  static std::array<float, 4> block(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
    const auto words = philox(seed, stream, block);
    const auto first = normal2(words[0], words[1]), second = normal2(words[2], words[3]);
    return {first[0], first[1], second[0], second[1]};
  }
};

// Number i of the sequence, remembering the block it came from.
template <class Numbers>
class Sequence {
 public:
  Sequence(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  float at(std::int64_t i) {
    const auto index = static_cast<std::uint64_t>(i);
    if (index / 4 != block_) {
      block_ = index / 4;
      numbers_ = Numbers::block(seed_, stream_, block_);
    }
    return numbers_[index % 4];
  }

 private:
  std::uint64_t seed_, stream_;
  std::uint64_t block_ = ~std::uint64_t{0};
  std::array<float, 4> numbers_{};
};

template <class Numbers>
void generate(std::uint64_t seed, std::uint64_t stream, double shift, double scale, Tensor& out) {
  dispatch_floating("random", out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = out.data<T>();
    parallel_runs(plan_walk(Order::row_major, out), [=](std::int64_t position, const std::int64_t* at,
                                                        std::int64_t count, const std::int64_t* stride) {
      Sequence<Numbers> sequence(seed, stream);
      for (std::int64_t i = 0; i < count; ++i)
        to[at[0] + i * stride[0]] =
            convert<T>(shift + scale * static_cast<double>(sequence.at(position + i)));
    });
  });
}

}  // namespace

void random_uniform(std::uint64_t seed, std::uint64_t stream, double low, double high, Tensor& out) {
  generate<Uniforms>(seed, stream, low, high - low, out);
}

void random_normal(std::uint64_t seed, std::uint64_t stream, double mean, double std, Tensor& out) {
  generate<Normals>(seed, stream, mean, std, out);
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
      Sequence<Uniforms> sequence(seed, stream);
      for (std::int64_t i = 0; i < count; ++i) {
        const bool keep = static_cast<double>(sequence.at(position + i)) >= p;
        const C value = convert<C>(from[at[1] + i * stride[1]]);
        to[at[0] + i * stride[0]] = convert<T>(keep ? value * scale : C{0});
      }
    });
  });
}

}  // namespace brigade::cpu
