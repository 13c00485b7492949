// SPDX-License-Identifier: MIT
// kernels/cuda/random.cpp - random numbers and dropout: the CPU's numbers (core/rng.h). Normal ones go through the
// device's logarithm and cosine in f64, and so may differ in the last bit of f32, in one of some ten million.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {
namespace {

void generate(device::Distribution distribution, std::uint64_t seed, std::uint64_t sequence, double shift,
              double scale, Tensor& out) {
  const cudaStream_t stream = stream_of(out);
  // Numbers are counted in logical order, so a walk cannot be cut in parts here.
  BRIGADE_CHECK(is_floating(out.dtype()), "random: needs a floating dtype; got ", out.dtype());
  BRIGADE_CHECK(out.numel() <= kMostElements, "random: at most ", kMostElements, " elements on a GPU; got ",
                out);
  launched(device::random(distribution, out.dtype(), seed, sequence, shift, scale, out.raw(),
                          strided(plan_walk(Order::row_major, out)), stream),
           "random numbers");
}

}  // namespace

void random_uniform(std::uint64_t seed, std::uint64_t stream, double low, double high, Tensor& out) {
  generate(device::Distribution::uniform, seed, stream, low, high - low, out);
}

void random_normal(std::uint64_t seed, std::uint64_t stream, double mean, double std, Tensor& out) {
  generate(device::Distribution::normal, seed, stream, mean, std, out);
}

void dropout(std::uint64_t seed, std::uint64_t stream, double p, const Tensor& x, Tensor& out) {
  BRIGADE_CHECK(is_floating(x.dtype()), "dropout: needs a floating dtype; got ", x.dtype());
  BRIGADE_CHECK(out.numel() <= kMostElements, "dropout: at most ", kMostElements, " elements on a GPU; got ",
                out);
  launched(device::dropout(x.dtype(), seed, stream, p, x.raw(), out.raw(),
                           strided(plan_walk(Order::row_major, out, x)), stream_of(out)),
           "dropout");
}

}  // namespace brigade::cuda
