// SPDX-License-Identifier: MIT
// kernels/reference/random.cpp - numbers that depend on the logical position only (core/rng.h).
#include "core/rng.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {
namespace {

// out[i] = f(n) for the n-th element in row-major order.
template <class F>
void generate(Tensor& out, F&& f) {
  dispatch(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::uint64_t n = 0;
    for_each_index(out.shape(), [&](const Dims& i) {
      out.data<T>()[offset(out, i)] = convert<T>(f(n, i));
      ++n;
    });
  });
}

}  // namespace

void random_uniform(std::uint64_t seed, std::uint64_t stream, double low, double high, Tensor& out) {
  generate(out, [&](std::uint64_t n, const Dims&) {
    return low + (high - low) * static_cast<double>(uniform_at(seed, stream, n));
  });
}

void random_normal(std::uint64_t seed, std::uint64_t stream, double mean, double std, Tensor& out) {
  generate(out, [&](std::uint64_t n, const Dims&) {
    return mean + std * static_cast<double>(normal_at(seed, stream, n));
  });
}

void dropout(std::uint64_t seed, std::uint64_t stream, double p, const Tensor& x, Tensor& out) {
  dispatch_floating("dropout", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    generate(out, [&](std::uint64_t n, const Dims& i) {
      const bool keep = static_cast<double>(uniform_at(seed, stream, n)) >= p;
      return keep ? convert<double>(x.data<T>()[offset(x, i)]) / (1 - p) : 0.0;
    });
  });
}

}  // namespace brigade::reference
