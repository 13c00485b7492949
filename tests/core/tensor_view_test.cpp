// SPDX-License-Identifier: MIT
// tests/core/tensor_view_test.cpp - views of a tensor against index arithmetic written out the slow way.
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "core/rng.h"
#include "core/tensor.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using Values = std::vector<double>;

namespace {

/// 0, 1, 2, … as floats: every element tells where it lies in memory.
Tensor iota(const Shape& shape) {
  std::vector<float> data(static_cast<std::size_t>(numel(shape)));
  std::iota(data.begin(), data.end(), 0.0f);
  return Tensor::from(data, shape);
}

/// Small random integers, one sequence a seed.
struct Dice {
  std::uint64_t seed;
  std::uint64_t at = 0;
  std::int64_t operator()(std::int64_t below) {
    return static_cast<std::int64_t>(philox(seed, 7, at++)[0] % static_cast<std::uint64_t>(below));
  }
};

/// A tensor whose strides a few random views have stirred.
Tensor stirred(Dice& dice) {
  Shape shape;
  for (std::int64_t d = dice(4) + 1; d > 0; --d) shape.push_back(dice(4) + 1);
  Tensor t = iota(shape);
  for (std::int64_t n = dice(4); n > 0; --n) {
    const std::int64_t dim = dice(t.dims());
    switch (dice(4)) {
      case 0:
        t = t.transpose(dim, dice(t.dims()));
        break;
      case 1:
        t = t.slice(dim, dice(2), t.size(dim), dice(2) + 1);
        break;
      case 2:
        t = t.dims() < 6 ? t.unsqueeze(dim) : t;
        break;
      default: {
        Shape wide = t.shape();
        if (wide[static_cast<int>(dim)] == 1) wide[static_cast<int>(dim)] = 3;
        t = t.expand(wide);
      }
    }
  }
  return t;
}

/// A random factorisation of `count` with some sizes of 1.
Shape refactored(std::int64_t count, Dice& dice) {
  Shape out;
  while (out.size() < 6 && (count > 1 || dice(3) == 0)) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= count; ++d)
      if (count % d == 0) divisors.push_back(d);
    out.push_back(out.size() == 5 ? count : divisors[static_cast<std::size_t>(dice(std::ssize(divisors)))]);
    count /= out.back();
  }
  if (count > 1) out.push_back(count);
  return out;
}

/// Whether some strides for `shape` reach the elements of `t` in order: the definition of a possible view,
/// decided by trying the only candidate. Along a new dim the address must grow by the same amount everywhere.
bool strides_exist(const Tensor& t, const Shape& shape) {
  const std::vector<float> where = t.to_vector<float>();  // iota: values are addresses
  const Strides dense = dense_strides(shape);
  Strides strides = Dims::filled(shape.size(), 0);
  for (int d = 0; d < shape.size(); ++d)
    if (shape[d] > 1)
      strides[d] = static_cast<std::int64_t>(where[static_cast<std::size_t>(dense[d])] - where[0]);
  for (std::size_t i = 0; i < where.size(); ++i) {
    std::int64_t at = 0, rest = static_cast<std::int64_t>(i);
    for (int d = 0; d < shape.size(); ++d) {
      at += rest / dense[d] * strides[d];
      rest %= dense[d];
    }
    if (static_cast<std::int64_t>(where[i] - where[0]) != at) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("view succeeds exactly when strides exist, and then keeps the elements in order",
          "[core][tensor]") {
  int possible = 0, impossible = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Dice dice{seed};
    const Tensor t = stirred(dice);
    if (t.numel() == 0) continue;
    const Shape shape = refactored(t.numel(), dice);
    const bool expected = strides_exist(t, shape);
    if (t.can_view(shape) != expected)
      FAIL("seed " << seed << ": " << str(t.shape(), " strides ", t.strides(), " as ", shape));
    (expected ? possible : impossible)++;
    if (!expected) {
      REQUIRE_THROWS_WITH(t.view(shape), ContainsSubstring("without a copy; use reshape"));
      continue;
    }
    if (t.view(shape).shape() != shape || test::values(t.view(shape)) != test::values(t))
      FAIL("seed " << seed);
  }
  // The generator must exercise both answers, or the comparison says nothing.
  REQUIRE(possible > 300);
  REQUIRE(impossible > 300);
}

TEST_CASE("view infers one size and refuses two, a wrong count and a size beside 0",
          "[core][tensor][error]") {
  const Tensor t = iota({2, 6});
  REQUIRE(t.view({3, -1}).shape() == Shape{3, 4});
  REQUIRE(t.view({-1}).shape() == Shape{12});
  REQUIRE_THROWS_WITH(t.view({-1, -1}), ContainsSubstring("at most one size may be -1"));
  REQUIRE_THROWS_WITH(t.view({5, -1}), "view: [2, 6] has 12 elements, which do not fit [5, -1]");
  REQUIRE_THROWS_WITH(t.view({13}), ContainsSubstring("do not fit [13]"));
  REQUIRE_THROWS_WITH(t.view({-2, -6}), ContainsSubstring("not negative"));
  REQUIRE_THROWS_AS(Tensor::empty({0, 3}).view({0, -1}), Error);
  REQUIRE(Tensor::empty({0, 3}).view({3, -1}).shape() == Shape{3, 0});
}

TEST_CASE("a transposed matrix reads its elements in the other order", "[core][tensor]") {
  REQUIRE(test::values(iota({2, 3}).transpose(0, 1)) == Values{0, 3, 1, 4, 2, 5});
  REQUIRE(iota({2, 3}).transpose(-1, -2).shape() == Shape{3, 2});
}

TEST_CASE("permute moves element (i, j, k) to (k, i, j)", "[core][tensor]") {
  const Tensor t = iota({2, 3, 4}), p = t.permute({2, 0, -2});
  REQUIRE(p.shape() == Shape{4, 2, 3});
  const Values from = test::values(t), to = test::values(p);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 4; ++k) REQUIRE(to[(k * 2 + i) * 3 + j] == from[(i * 3 + j) * 4 + k]);
}

TEST_CASE("permute wants each dim once", "[core][tensor][error]") {
  REQUIRE_THROWS_WITH(iota({2, 3}).permute({0}), "permute: needs 2 dims; got [0]");
  REQUIRE_THROWS_WITH(iota({2, 3}).permute({0, -2}), "permute: each dim once; got [0, -2]");
}

TEST_CASE("slice takes every step-th element between begin and end, as Python does", "[core][tensor]") {
  const Tensor t = iota({7});
  for (std::int64_t begin = -9; begin <= 9; ++begin)
    for (std::int64_t end = -9; end <= 9; ++end)
      for (std::int64_t step : {1, 2, 3, 10}) {
        Values expected;
        const auto clip = [](std::int64_t i) {
          return std::min<std::int64_t>(std::max<std::int64_t>(i < 0 ? i + 7 : i, 0), 7);
        };
        for (std::int64_t i = clip(begin); i < clip(end); i += step)
          expected.push_back(static_cast<double>(i));
        if (test::values(t.slice(0, begin, end, step)) != expected) FAIL(str(begin, ":", end, ":", step));
      }
  REQUIRE(test::values(iota({2, 4}).slice(-1, 1, 4, 2)) == Values{1, 3, 5, 7});
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  REQUIRE(test::values(t.slice(0, 0, kMax, kMax)) == Values{0});
}

TEST_CASE("slice refuses a step below 1 and a dim that does not exist", "[core][tensor][error]") {
  REQUIRE_THROWS_WITH(iota({3}).slice(0, 0, 3, 0), "slice: step must be at least 1; got 0");
  REQUIRE_THROWS_WITH(iota({3}).slice(1, 0, 3), ContainsSubstring("slice: dim must lie in [-1, 1)"));
}

TEST_CASE("select drops a dim at an index that may count from the end", "[core][tensor]") {
  const Tensor t = iota({2, 3});
  REQUIRE(test::values(t.select(0, -1)) == Values{3, 4, 5});
  REQUIRE(test::values(t.select(1, 1)) == Values{1, 4});
  REQUIRE(t.select(0, 0).select(0, 2).dims() == 0);
  REQUIRE_THROWS_WITH(t.select(1, 3), "select: index must lie in [-3, 3) of dim 1 of [2, 3]; got 3");
}

TEST_CASE("select reaches indices beyond 32 bits", "[core][tensor]") {
  const std::int64_t size = (std::int64_t{1} << 32) + 3;
  const Tensor t = iota({1}).expand({size});
  REQUIRE(t.select(0, size - 1).item() == 0);
  REQUIRE_THROWS_AS(t.select(0, size), Error);
}

TEST_CASE("expand repeats sizes of 1 and new dims without memory", "[core][tensor]") {
  const Tensor t = iota({3, 1});
  const Tensor e = t.expand({2, 3, 2});
  REQUIRE(test::values(e) == Values{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2});
  REQUIRE(e.storage() == t.storage());
  REQUIRE(e.strides() == Strides{0, 1, 0});
  REQUIRE_THROWS_WITH(t.expand({4, 1}), ContainsSubstring("only sizes of 1 stretch; got [3, 1] to [4, 1]"));
  REQUIRE_THROWS_WITH(t.expand({3}), ContainsSubstring("cannot drop dims"));
}

TEST_CASE("squeeze and unsqueeze are each other's inverse at every dim", "[core][tensor]") {
  const Tensor t = iota({2, 3});
  for (std::int64_t dim = -3; dim < 3; ++dim) {
    const Tensor u = t.unsqueeze(dim);
    REQUIRE(u.size(dim) == 1);
    REQUIRE(u.is_contiguous());
    REQUIRE(u.squeeze(dim).same_view(t));
  }
  REQUIRE_THROWS_WITH(t.squeeze(0), "squeeze: dim 0 must have size 1; got [2, 3]");
  REQUIRE_THROWS_AS(t.unsqueeze(3), Error);
}

TEST_CASE("reinterpret takes the same bytes for another dtype of equal size", "[core][tensor]") {
  const Tensor bytes = Tensor::from<std::uint8_t>({1, 127, 128, 255}, {2, 2}).slice(1, 1, 2);
  const Tensor signed_bytes = bytes.reinterpret(DType::i8);
  CHECK(signed_bytes.to_vector<std::int8_t>() == std::vector<std::int8_t>{127, -1});
  CHECK(signed_bytes.raw() == bytes.raw());
  REQUIRE_THROWS_WITH(bytes.reinterpret(DType::f32), ContainsSubstring("u8 [2, 1] as f32"));
}
