// SPDX-License-Identifier: MIT
// core/dtype.h - element types, the two 16-bit floats, and the switch from a DType to a C++ type.
// Included by CUDA files: keep it free of library headers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/check.h"

#if defined(__CUDACC__)
#define BRIGADE_HD __host__ __device__
#else
#define BRIGADE_HD
#endif

namespace brigade {

/// Element types of a Tensor. Parameters are f32 or f64; activations may be 16 bits wide.
enum class DType : std::uint8_t { f32, f64, bf16, f16, i32, i64, u8, i8, boolean };

inline constexpr std::array kAllDTypes{DType::f32, DType::f64, DType::bf16, DType::f16,    DType::i32,
                                       DType::i64, DType::u8,  DType::i8,   DType::boolean};

/// bfloat16: the upper half of a float. g++ 12 has no C++ type for it.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  BRIGADE_HD bf16(float value) : bits(round(value)) {}
  BRIGADE_HD operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

 private:
  // Round to nearest, ties to even; a NaN keeps its sign and stays a NaN whatever its low bits were.
  // Both results are computed and one is chosen: loops of conversions vectorise, which a branch would prevent.
  BRIGADE_HD static std::uint16_t round(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, nan = (u >> 16) | 0x40u;
    return static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

/// IEEE 754 binary16, converted in portable integer arithmetic (round to nearest even, subnormals kept).
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  BRIGADE_HD f16(float value) : bits(round(value)) {}
  BRIGADE_HD operator float() const { return widen(bits); }

 private:
  // As in bf16, every case is computed and then one is chosen.
  BRIGADE_HD static std::uint16_t round(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    // Subnormal: adding 0.5 aligns the mantissa so that the FPU rounds at bit 2^-24 for us. Everybody adds something,
    // since the compiler may not do a float operation that the program would skip.
    const bool subnormal = magnitude < 0x38800000u;
    const float shifted = std::bit_cast<float>(magnitude) + (subnormal ? 0.5f : 0.0f);
    const auto aligned = std::bit_cast<std::uint32_t>(shifted);
    const std::uint32_t rebased = aligned - (112u << 23);  // exponent bias 127 -> 15
    const std::uint32_t normal = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
    std::uint32_t result = subnormal ? aligned - 0x3f000000u : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // 65520 and above round to infinity
    result = magnitude > 0x7f800000u ? 0x7e00u : result;   // NaN
    return static_cast<std::uint16_t>(((u >> 16) & 0x8000u) | result);
  }
  BRIGADE_HD static float widen(std::uint16_t h) {
    const std::uint32_t magnitude = h & 0x7fffu;
    // A subnormal has no hidden bit: with one more in the exponent it is 2^-14 too large. Only constants are chosen
    // here, since the compiler may not do a float operation that the program would skip.
    const bool subnormal = magnitude < 0x0400u;
    const std::uint32_t rebased = (magnitude << 13) + (subnormal ? 113u << 23 : 112u << 23);
    const float value = std::bit_cast<float>(rebased) - std::bit_cast<float>(subnormal ? 113u << 23 : 0u);
    const std::uint32_t result = magnitude >= 0x7c00u ? 0x7f800000u | (magnitude << 13)
                                                      : std::bit_cast<std::uint32_t>(value);  // Infinity, NaN
    return std::bit_cast<float>(std::uint32_t{h & 0x8000u} << 16 | result);
  }
};

/// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    default:
      return 1;
  }
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}

/// "f32", "bf16", …, "bool": the names used in messages, flags and plans.
std::string_view name(DType dtype);
inline void append_text(std::string& out, DType dtype) { out += name(dtype); }

template <class T>
struct TypeTag {
  using type = T;
};

/// The DType of a C++ element type (compile error for any other type).
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, f16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return DType::i8;
  else {
    static_assert(std::is_same_v<T, bool>, "not an element type");
    return DType::boolean;
  }
}

/// The type arithmetic is done in: 16-bit floats compute in float, everything else in itself.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, f16>, float, T>;

/// Calls `f(TypeTag<T>{})` with the C++ type of `dtype`.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::f64:
      return f(TypeTag<double>{});
    case DType::bf16:
      return f(TypeTag<bf16>{});
    case DType::f16:
      return f(TypeTag<f16>{});
    case DType::i32:
      return f(TypeTag<std::int32_t>{});
    case DType::i64:
      return f(TypeTag<std::int64_t>{});
    case DType::u8:
      return f(TypeTag<std::uint8_t>{});
    case DType::i8:
      return f(TypeTag<std::int8_t>{});
    case DType::boolean:
      return f(TypeTag<bool>{});
  }
  fail("dispatch: not a dtype");
}

/// dispatch() restricted to floating dtypes; any other throws Error naming `op`.
template <class F>
decltype(auto) dispatch_floating(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::f64:
      return f(TypeTag<double>{});
    case DType::bf16:
      return f(TypeTag<bf16>{});
    case DType::f16:
      return f(TypeTag<f16>{});
    default:
      fail(str(op, ": needs a floating dtype; got ", dtype));
  }
}

}  // namespace brigade
