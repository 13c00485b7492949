// SPDX-License-Identifier: MIT
// tests/kernels/copy_test.cpp - conversions between all dtypes, the 16-bit floats exhaustively, and copies between
// layouts, including those that go tile by tile.
#include <bit>
#include <cmath>

#include "tests/kernels/layouts.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

// All 65536 bit patterns of a 16-bit float.
template <class T>
Tensor all_halves() {
  Tensor t = Tensor::empty({65536}, dtype_of<T>());
  for (int i = 0; i < 65536; ++i) t.data<T>()[i] = std::bit_cast<T>(static_cast<std::uint16_t>(i));
  return t.to(test::test_device());
}

// The 16-bit float nearest to x, ties to the even bit pattern, by looking at both neighbours in double.
template <class T>
void check_midpoints() {
  // Positive finite values in rising order are the bit patterns 0, 1, 2, …
  for (std::uint16_t bits = 0;; ++bits) {
    const T low = std::bit_cast<T>(bits), high = std::bit_cast<T>(static_cast<std::uint16_t>(bits + 1));
    if (std::isinf(static_cast<float>(high))) break;
    const auto middle = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    const float below = std::nextafterf(middle, 0.0f), above = std::nextafterf(middle, INFINITY);
    const std::uint16_t even = bits % 2 == 0 ? bits : static_cast<std::uint16_t>(bits + 1);
    if (T(middle).bits != even || T(-middle).bits != (even | 0x8000)) FAIL("midpoint above " << bits);
    if (T(below).bits != bits) FAIL("below the midpoint above " << bits);
    if (T(above).bits != bits + 1) FAIL("above the midpoint above " << bits);
  }
}

template <class T>
void check_round_trip() {
  const auto back = ops::cast(ops::cast(all_halves<T>(), DType::f32), dtype_of<T>()).template to_vector<T>();
  for (int i = 0; i < 65536; ++i) {
    const T before = std::bit_cast<T>(static_cast<std::uint16_t>(i)),
            after = back[static_cast<std::size_t>(i)];
    const bool nan = std::isnan(static_cast<float>(before));
    if (nan ? !std::isnan(static_cast<float>(after)) : before.bits != after.bits) FAIL("bits " << i);
  }
}

}  // namespace

TEST_CASE("bf16 survives the way to f32 and back in all 65536 values", "[kernels][cast]") {
  check_round_trip<bf16>();
}
TEST_CASE("f16 survives the way to f32 and back in all 65536 values", "[kernels][cast]") {
  check_round_trip<f16>();
}
TEST_CASE("bf16 rounds to nearest, midpoints to even", "[kernels][cast]") { check_midpoints<bf16>(); }
TEST_CASE("f16 rounds to nearest, midpoints to even", "[kernels][cast]") { check_midpoints<f16>(); }

TEST_CASE("16-bit floats overflow to infinity at half a step above the largest", "[kernels][cast]") {
  CHECK(static_cast<float>(f16(65519.99f)) == 65504.0f);
  CHECK(std::isinf(static_cast<float>(f16(65520.0f))));
  CHECK(std::isinf(static_cast<float>(bf16(3.4e38f))));
  CHECK(static_cast<float>(bf16(3.38e38f)) < 3.4e38f);
}

TEST_CASE("casts between all dtypes equal the reference in every layout", "[kernels][cast]") {
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes)
      for (const auto& layout : test::layouts(6, from)) {
        INFO(name(from) << " to " << name(to) << ", " << layout.name);
        // A negative float has no value in u8.
        const bool magnitude = to == DType::u8 && is_floating(from);
        const Tensor x = magnitude ? ops::unary(Unary::abs, layout.tensor) : layout.tensor;
        Tensor expected = test::empty(x.shape(), to);
        test::reference().copy(x, expected);
        Tensor got = test::empty(x.shape(), to, MemoryFormat::channels_last);
        ops::copy_(got, x);
        CHECK(test::differs_bitwise(got, expected) == "");
        CHECK(test::differs_bitwise(ops::cast(x, to), expected) == "");
      }
}

TEST_CASE("casts to integers cut towards zero, casts to bool ask whether it is not zero", "[kernels][cast]") {
  const Tensor x = test::from<float>({1.9f, -1.9f, 0.0f, 0.25f}, {4});
  CHECK(test::values(ops::cast(x, DType::i32)) == std::vector<double>{1, -1, 0, 0});
  CHECK(test::values(ops::cast(x, DType::boolean)) == std::vector<double>{1, 1, 0, 1});
  CHECK(test::values(ops::cast(ops::cast(x, DType::boolean), DType::f16)) == std::vector<double>{1, 1, 0, 1});
  const Tensor large = test::from<std::int64_t>(std::vector<std::int64_t>{300, -1}, {2});
  CHECK(test::values(ops::cast(large, DType::u8)) == std::vector<double>{44, 255});
}

TEST_CASE("copies between layouts keep every element, whatever the tile", "[kernels][copy]") {
  const Shape shapes[] = {{3, 70, 9, 8}, {2, 3, 33, 17}, {1, 64, 32, 32},
                          {2, 5, 1, 3},  {2, 1, 5, 7},   {3, 4, 4, 4}};
  for (const Shape& shape : shapes)
    for (DType dtype : {DType::f32, DType::bf16, DType::u8}) {
      INFO(str(shape, " ", dtype));
      const Tensor x = test::random(shape, 1, dtype);
      const Tensor last = ops::clone(x, MemoryFormat::channels_last);
      CHECK(last.is_contiguous(MemoryFormat::channels_last));
      CHECK(test::differs_bitwise(last, x) == "");
      CHECK(test::differs_bitwise(ops::clone(last), x) == "");
    }
  for (const Shape& shape : {Shape{70, 45}, Shape{4, 1000}, Shape{257, 64}, Shape{3, 5}}) {
    INFO(str(shape));
    const Tensor x = test::random(shape, 2);
    const Tensor turned = ops::clone(x.transpose(0, 1));
    CHECK(turned.is_contiguous());
    const auto from = test::values(x), to = test::values(turned);
    for (std::int64_t i = 0; i < shape[0]; ++i)
      for (std::int64_t j = 0; j < shape[1]; ++j)
        if (from[static_cast<std::size_t>(i * shape[1] + j)] !=
            to[static_cast<std::size_t>(j * shape[0] + i)])
          FAIL("element " << i << ", " << j);
  }
  const Tensor batch = test::random({3, 40, 50, 6}, 3);
  Tensor expected = test::empty({6, 40, 3, 50});
  test::reference().copy(batch.permute({3, 1, 0, 2}), expected);
  CHECK(test::differs_bitwise(ops::clone(batch.permute({3, 1, 0, 2})), expected) == "");
}

TEST_CASE("a copy into a part of a tensor leaves the rest alone", "[kernels][copy]") {
  Tensor whole = test::full({4, 6}, 7);
  Tensor part = whole.slice(0, 1, 3).slice(1, 0, 6, 2);
  ops::copy_(part, test::full({2, 3}, 1));
  CHECK(test::values(whole) ==
        std::vector<double>{7, 7, 7, 7, 7, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7, 7, 7, 7, 7, 7, 7});
  ops::fill_(part, 2);
  CHECK(test::values(whole.select(0, 2)) == std::vector<double>{2, 7, 2, 7, 2, 7});
  // Overlapping views of one tensor: as if all were read before the first is written.
  Tensor line = ops::cast(ops::arange(5, DType::i64, test::test_device()), DType::f32);
  Tensor tail = line.slice(0, 1, 5);
  ops::copy_(tail, line.slice(0, 0, 4));
  CHECK(test::values(line) == std::vector<double>{0, 0, 1, 2, 3});
}
