// SPDX-License-Identifier: MIT
// tests/core/dtype_test.cpp - 16-bit floats at their edges, sizes, names and dispatch.
#include "core/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/support/test.h"

using namespace brigade;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

std::uint16_t to_bf16(float value) { return bf16(value).bits; }
std::uint16_t to_f16(float value) { return f16(value).bits; }

template <class T>
float widened(int bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

}  // namespace

TEST_CASE("bf16 keeps signs, zeros and infinities", "[core][dtype]") {
  REQUIRE(to_bf16(0.0f) == 0x0000);
  REQUIRE(to_bf16(-0.0f) == 0x8000);
  REQUIRE(to_bf16(1.0f) == 0x3f80);
  REQUIRE(to_bf16(-2.0f) == 0xc000);
  REQUIRE(to_bf16(kInf) == 0x7f80);
  REQUIRE(to_bf16(-kInf) == 0xff80);
}

TEST_CASE("bf16 rounds to nearest with ties to even", "[core][dtype]") {
  // One unit of bf16 at 1 is 2^-7; these floats lie at half and around it.
  REQUIRE(to_bf16(1.0f + 0x1p-8f) == 0x3f80);                     // tie, stays at the even 1
  REQUIRE(to_bf16(1.0f + 0x1p-7f + 0x1p-8f) == 0x3f82);           // tie, goes up to the even neighbour
  REQUIRE(to_bf16(1.0f + 0x1p-8f + 0x1p-23f) == 0x3f81);          // just above the tie
  REQUIRE(to_bf16(1.0f + 0x1p-8f - 0x1p-23f) == 0x3f80);          // just below it
  REQUIRE(to_bf16(std::numeric_limits<float>::max()) == 0x7f80);  // beyond the largest bf16
  REQUIRE(to_bf16(0x1p-149f) == 0x0000);
}

TEST_CASE("bf16 keeps a NaN a NaN when its payload lies in the dropped bits", "[core][dtype]") {
  const float nan = std::bit_cast<float>(0xff800001u);
  REQUIRE(std::isnan(static_cast<float>(bf16(nan))));
  REQUIRE(to_bf16(nan) == 0xffc0);
}

TEST_CASE("f16 keeps signs, zeros, infinities and NaN", "[core][dtype]") {
  REQUIRE(to_f16(0.0f) == 0x0000);
  REQUIRE(to_f16(-0.0f) == 0x8000);
  REQUIRE(to_f16(1.0f) == 0x3c00);
  REQUIRE(to_f16(-2.0f) == 0xc000);
  REQUIRE(to_f16(kInf) == 0x7c00);
  REQUIRE(to_f16(-kInf) == 0xfc00);
  REQUIRE(std::isnan(static_cast<float>(f16(kNaN))));
}

TEST_CASE("f16 overflows to infinity from 65520 on and not before", "[core][dtype]") {
  REQUIRE(to_f16(65504.0f) == 0x7bff);
  REQUIRE(to_f16(std::nextafter(65520.0f, 0.0f)) == 0x7bff);
  REQUIRE(to_f16(65520.0f) == 0x7c00);
  REQUIRE(to_f16(-65520.0f) == 0xfc00);
}

TEST_CASE("f16 keeps subnormals and rounds them to nearest with ties to even", "[core][dtype]") {
  REQUIRE(to_f16(0x1p-24f) == 0x0001);
  REQUIRE(to_f16(0x1p-25f) == 0x0000);                        // tie with zero
  REQUIRE(to_f16(std::nextafter(0x1p-25f, 1.0f)) == 0x0001);  // just above the tie
  REQUIRE(to_f16(1.5f * 0x1p-24f) == 0x0002);                 // tie, goes to even
  REQUIRE(to_f16(0x1p-14f - 0x1p-24f) == 0x03ff);             // the largest subnormal
  REQUIRE(to_f16(std::nextafter(0x1p-14f, 0.0f)) == 0x0400);  // rounds into the normals
  REQUIRE(to_f16(-0x1p-24f) == 0x8001);
}

TEST_CASE("every f16 and bf16 that is not NaN survives the way to float and back", "[core][dtype]") {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const float a = widened<bf16>(bits), b = widened<f16>(bits);
    if (!std::isnan(a) && to_bf16(a) != bits) FAIL("bf16 " << bits);
    if (!std::isnan(b) && to_f16(b) != bits) FAIL("f16 " << bits);
  }
}

TEST_CASE("every f16 and bf16 widens to the value its bits stand for, also in a loop that vectorises",
          "[core][dtype]") {
  const auto check = [](auto tag, int exponent_bits, int mantissa_bits) {
    using T = typename decltype(tag)::type;
    std::vector<T> narrow(1 << 16);
    for (int bits = 0; bits < 1 << 16; ++bits)
      narrow[static_cast<std::size_t>(bits)].bits = static_cast<std::uint16_t>(bits);
    std::vector<float> wide(narrow.size());
    for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = narrow[i];
    const int top = (1 << exponent_bits) - 1, bias = top / 2;
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const int exponent = bits >> mantissa_bits & top, mantissa = bits & ((1 << mantissa_bits) - 1);
      const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      double expected = std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
      if (exponent == top) expected = kInf;
      if (bits >> 15 != 0) expected = -expected;
      const float got = wide[static_cast<std::size_t>(bits)];
      const bool nan = exponent == top && mantissa != 0;
      const bool right = nan ? std::isnan(got) : got == expected && std::signbit(got) == (bits >> 15 != 0);
      if (!right) FAIL(name(dtype_of<T>()) << " " << bits << " became " << got);
    }
  };
  check(TypeTag<bf16>{}, 8, 7);
  check(TypeTag<f16>{}, 5, 10);
}

TEST_CASE(
    "floats of all sizes round to the nearest f16 and bf16, ties to even, also in a loop that vectorises",
    "[core][dtype]") {
  // Every 1009th float (a prime: all low bits occur), and those around the ties, where the dropped bits are 0x8000.
  std::vector<std::uint32_t> patterns;
  for (std::uint64_t u = 0; u < 1ull << 32; u += 1009) patterns.push_back(static_cast<std::uint32_t>(u));
  for (std::uint32_t high = 0; high < 1u << 16; ++high)
    for (const std::uint32_t low : {0x7fffu, 0x8000u, 0x8001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u})
      patterns.push_back(high << 16 | low);
  std::vector<float> wide(patterns.size());
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = std::bit_cast<float>(patterns[i]);

  const auto check = [&](auto tag, int infinity) {
    using T = typename decltype(tag)::type;
    std::vector<T> narrow(wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) narrow[i] = T(wide[i]);
    const auto value = [&](int magnitude) {
      // Past the largest number the grid goes on: that is where infinity lies for rounding.
      const double last = widened<T>(infinity - 1),
                   step = last - static_cast<double>(widened<T>(infinity - 2));
      return magnitude == infinity ? last + step : static_cast<double>(widened<T>(magnitude));
    };
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const int bits = narrow[i].bits, magnitude = bits & 0x7fff;
      const double exact = std::abs(static_cast<double>(wide[i]));
      bool right = (bits >> 15 != 0) == std::signbit(wide[i]);
      if (std::isnan(wide[i])) {
        right = right && magnitude > infinity;
      } else if (std::isinf(wide[i])) {
        right = right && magnitude == infinity;
      } else {
        const double off = std::abs(value(magnitude) - exact);
        const auto nearer = [&](int other) {
          const double theirs = std::abs(value(other) - exact);
          return theirs < off || (theirs == off && magnitude % 2 != 0);
        };
        right = right && magnitude <= infinity && !(magnitude > 0 && nearer(magnitude - 1)) &&
                !(magnitude < infinity && nearer(magnitude + 1));
      }
      if (!right) FAIL(name(dtype_of<T>()) << " of " << wide[i] << " is " << bits);
    }
  };
  check(TypeTag<bf16>{}, 0x7f80);
  check(TypeTag<f16>{}, 0x7c00);
}

TEST_CASE("size_of, name and dispatch agree with the C++ types", "[core][dtype]") {
  std::set<std::string> names;
  for (DType dtype : kAllDTypes) {
    names.insert(std::string(name(dtype)));
    dispatch(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      REQUIRE(dtype_of<T>() == dtype);
      REQUIRE(size_of(dtype) == static_cast<std::int64_t>(sizeof(T)));
      REQUIRE(is_floating(dtype) == (std::is_floating_point_v<compute_t<T>>));
    });
  }
  REQUIRE(names == std::set<std::string>{"bf16", "bool", "f16", "f32", "f64", "i32", "i64", "i8", "u8"});
}

TEST_CASE("dispatch_floating names the operation and the dtype it refuses", "[core][dtype][error]") {
  const auto size = [](auto tag) { return sizeof(typename decltype(tag)::type); };
  REQUIRE(dispatch_floating("exp", DType::f16, size) == 2);
  REQUIRE_THROWS_WITH(dispatch_floating("exp", DType::i32, size), "exp: needs a floating dtype; got i32");
  REQUIRE_THROWS_WITH(dispatch(static_cast<DType>(99), size), "dispatch: not a dtype");
}
