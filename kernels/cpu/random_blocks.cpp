// SPDX-License-Identifier: MIT
// kernels/cpu/random_blocks.cpp - Philox in lanes, and Box-Muller without calls of the mathematics library.
//
// normal2() computes in f64 with the library's log, sin and cos and rounds once to f32. Series computed here differ
// from those in the last few bits of f64, which the rounding nearly always hides. Where it might not, because the f64
// result lies next to the middle between two floats (two numbers in ten million), normal2() itself is asked: so all
// bits agree.
#include "kernels/cpu/random_blocks.h"

#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "core/rng.h"

namespace brigade::cpu {
namespace {

// One word of all blocks.
using Lanes = std::array<std::uint32_t, kRandomBlocks>;

std::array<Lanes, 4> philox_blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t first) {
  Lanes c0, c1, c2, c3;
  for (std::size_t i = 0; i < kRandomBlocks; ++i) {
    c0[i] = static_cast<std::uint32_t>(first + i);
    c1[i] = static_cast<std::uint32_t>((first + i) >> 32);
  }
  c2.fill(static_cast<std::uint32_t>(stream));
  c3.fill(static_cast<std::uint32_t>(stream >> 32));
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  // Rounds outside, lanes inside: see philox().
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < kRandomBlocks; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[i], p1 = std::uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = static_cast<std::uint32_t>(p1);
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// c + c1 z + c2 z² + …
inline double polynomial(double, double c) { return c; }
template <class... Rest>
inline double polynomial(double z, double c, Rest... rest) {
  return c + z * polynomial(z, rest...);
}

// ln u for u = m 2^e with m in [sqrt(1/2), sqrt(2)):  e ln 2 + 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172. The
// first term left out, 2 s^25 / 25, is below 2^-66.
inline double logarithm(double u) {
  const auto bits = std::bit_cast<std::int64_t>(u);
  const std::int64_t e = (bits - std::bit_cast<std::int64_t>(std::numbers::sqrt2 / 2)) >> 52;
  const double f = std::bit_cast<double>(bits - e * (std::int64_t{1} << 52)) - 1;
  const double s = f / (2 + f), z = s * s;
  const double rest = polynomial(z, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15,
                                 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23);
  return static_cast<double>(e) * std::numbers::ln2 + (2 * s + 2 * s * z * rest);
}

// Taylor's series for |r| <= pi / 4; the first terms left out are below 2^-63 and 2^-58.
inline double sine(double r) {
  const double z = r * r;
  return r + r * z *
                 polynomial(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                            1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000);
}
inline double cosine(double r) {
  return polynomial(r * r, 1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                    -1.0 / 87178291200, 1.0 / 20922789888000);
}

// Pi / 2 in two parts, the first of 33 bits, so that its multiples by 0 to 4 and their differences to an angle are
// exact.
constexpr double kQuarter = 0x1.921fb544p+0, kQuarterRest = 0x1.0b4611a626331p-34;

// Whether f32(x) could be another number if x were off by 64 units in its last place: then the 29 bits that rounding
// drops are close to one half.
inline std::uint64_t rounds_in_doubt(double x) {
  constexpr std::uint64_t kDropped = (std::uint64_t{1} << 29) - 1, kHalf = std::uint64_t{1} << 28, kBand = 64;
  return ((std::bit_cast<std::uint64_t>(x) + kBand - kHalf) & kDropped) < 2 * kBand ? 1 : 0;
}

}  // namespace

void normal_pairs(const std::uint32_t* a, const std::uint32_t* b, int count, float* first, float* second) {
  std::array<std::uint64_t, kRandomBlocks> doubt;
  std::uint64_t any = 0;
  for (int i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2.0 * logarithm((static_cast<double>(a[i]) + 1.0) * 0x1p-32));
    // The same f64 number as in normal2(): near the axes its rounding is what the result consists of.
    const double angle = 6.283185307179586 * (static_cast<double>(b[i]) * 0x1p-32);
    const std::uint32_t quarter = (b[i] >> 30) + ((b[i] >> 29) & 1);  // The nearest, 0 to 4.
    const auto q = static_cast<double>(quarter);
    const double r = (angle - q * kQuarter) - q * kQuarterRest;
    const double c = cosine(r), s = sine(r);
    const bool odd = (quarter & 1) != 0;
    const double x = (odd ? s : c) * (((quarter + 1) & 2) != 0 ? -radius : radius);
    const double y = (odd ? c : s) * ((quarter & 2) != 0 ? -radius : radius);
    first[i] = static_cast<float>(x);
    second[i] = static_cast<float>(y);
    // On an axis r is all rounding.
    const std::uint64_t on_axis = std::abs(r) < 0x1p-20 ? 1 : 0;
    const auto lane = static_cast<std::size_t>(i);
    doubt[lane] = on_axis | rounds_in_doubt(x) | rounds_in_doubt(y);
    any |= doubt[lane];
  }
  if (any == 0) return;
  for (int i = 0; i < count; ++i) {
    if (doubt[static_cast<std::size_t>(i)] == 0) continue;
    const auto exact = normal2(a[i], b[i]);
    first[i] = exact[0];
    second[i] = exact[1];
  }
}

void uniform_blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, int count, float* out) {
  const auto words = philox_blocks(seed, stream, first);
  for (int i = 0; i < count; ++i)
    for (std::size_t w = 0; w < 4; ++w)
      out[4 * i + static_cast<int>(w)] = uniform01(words[w][static_cast<std::size_t>(i)]);
}

void normal_blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, int count, float* out) {
  const auto words = philox_blocks(seed, stream, first);
  std::array<float, kRandomBlocks> numbers[4];
  normal_pairs(words[0].data(), words[1].data(), count, numbers[0].data(), numbers[1].data());
  normal_pairs(words[2].data(), words[3].data(), count, numbers[2].data(), numbers[3].data());
  for (int i = 0; i < count; ++i)
    for (int w = 0; w < 4; ++w) out[4 * i + w] = numbers[w][static_cast<std::size_t>(i)];
}

}  // namespace brigade::cpu
