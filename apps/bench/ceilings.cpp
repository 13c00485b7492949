// SPDX-License-Identifier: MIT
// apps/bench/ceilings.cpp - see the header.
#include "apps/bench/ceilings.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/bench/timing.h"
#include "core/parallel.h"
#include "core/rng.h"
#include "kernels/ops.h"

namespace brigade::apps {
namespace {

// A vector of the compiler: 16 floats, one register of AVX-512 or several narrower ones.
using Floats = float __attribute__((vector_size(64)));

// 12 chains hide the latency of a multiply-add (4 cycles, two a cycle) with some to spare, and fit the registers. This
// file is compiled with -ffp-contract=fast, so that each line is one fused instruction.
float chains(std::int64_t rounds, float seed) {
  Floats x[12];
  for (int i = 0; i < 12; ++i) x[i] = Floats{} + seed * static_cast<float>(i + 1);
  const Floats m = Floats{} + 0.999F, b = Floats{} + 0.001F;
  Floats x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6], x7 = x[7], x8 = x[8],
         x9 = x[9], x10 = x[10], x11 = x[11];
  for (std::int64_t r = 0; r < rounds; ++r) {
    x0 = x0 * m + b;
    x1 = x1 * m + b;
    x2 = x2 * m + b;
    x3 = x3 * m + b;
    x4 = x4 * m + b;
    x5 = x5 * m + b;
    x6 = x6 * m + b;
    x7 = x7 * m + b;
    x8 = x8 * m + b;
    x9 = x9 * m + b;
    x10 = x10 * m + b;
    x11 = x11 * m + b;
  }
  const Floats sum = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + x10 + x11;
  float out = 0;
  for (int i = 0; i < 16; ++i) out += sum[i];
  return out;
}

}  // namespace

double fma_gflops() {
  constexpr std::int64_t kRounds = 200'000;
  const int threads = num_threads();
  std::vector<float> sums(static_cast<std::size_t>(threads));
  const auto call = [&] {
    parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t)
        sums[static_cast<std::size_t>(t)] = chains(kRounds, static_cast<float>(t));
    });
  };
  const std::vector<double> times = repeat_ms(call, {.min_calls = 10, .min_ms = 50});
  const double flops = 2.0 * 12 * 16 * kRounds * threads;
  return 1e-6 * flops / *std::min_element(times.begin(), times.end());
}

double matmul_gflops(DType precision) {
  Generator generator{.seed = 1};
  double best = 0;
  for (const std::int64_t n : {512, 1024, 2048}) {
    const Tensor a = ops::cast(ops::randn({n, n}, generator), precision);
    const Tensor b = ops::cast(ops::randn({n, n}, generator), precision);
    const std::vector<double> times = repeat_ms([&] { ops::matmul(a, b); }, {.min_calls = 3, .min_ms = 50});
    best = std::max(
        best, 2e-6 * std::pow(static_cast<double>(n), 3) / *std::min_element(times.begin(), times.end()));
  }
  return best;
}

double CopyBandwidth::gb_per_s(double bytes) {
  const int log2 = std::clamp(static_cast<int>(std::lround(std::log2(std::max(bytes, 1.0)))), 14, 28);
  const auto known = by_log2_.find(log2);
  if (known != by_log2_.end()) return known->second;
  const std::int64_t half = (std::int64_t{1} << log2) / 2;
  const Tensor from = Tensor::zeros({half}, DType::u8), to = Tensor::zeros({half}, DType::u8);
  const auto call = [&] {
    parallel_for(half, 4096, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.raw() + begin, from.raw() + begin, static_cast<std::size_t>(end - begin));
    });
  };
  const std::vector<double> times = repeat_ms(call, {.min_calls = 5, .min_ms = 10, .max_calls = 100'000});
  return by_log2_[log2] = 1e-6 * 2 * static_cast<double>(half) / quantile(times, 0.5);
}

}  // namespace brigade::apps
