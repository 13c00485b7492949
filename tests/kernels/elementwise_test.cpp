// SPDX-License-Identifier: MIT
// tests/kernels/elementwise_test.cpp - one row an operation: the kernels under test against the reference over dtypes,
// layouts and broadcasts; then the reference against values worked out by hand.
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "tests/kernels/layouts.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

constexpr DType kNumbers[] = {DType::f32, DType::f64, DType::bf16, DType::f16,
                              DType::i32, DType::i64, DType::u8,   DType::i8};
constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
const double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Takes { floats, numbers, all };

std::vector<DType> dtypes(Takes takes) {
  if (takes == Takes::floats) return {std::begin(kFloats), std::end(kFloats)};
  if (takes == Takes::numbers) return {std::begin(kNumbers), std::end(kNumbers)};
  return {kAllDTypes.begin(), kAllDTypes.end()};
}

// `inputs` and `expected` are worked out by hand, or are values of well-known functions.
struct UnaryRow {
  std::string name;
  Unary op;
  Takes takes;
  std::vector<double> inputs, expected;
};

const std::vector<UnaryRow> kUnary{
    {"neg", Unary::neg, Takes::numbers, {1.5, -2, 0}, {-1.5, 2, 0}},
    {"abs", Unary::abs, Takes::numbers, {1.5, -2, -kInf}, {1.5, 2, kInf}},
    {"exp", Unary::exp, Takes::floats, {0, 1, -kInf}, {1, 2.718281828459045, 0}},
    {"log", Unary::log, Takes::floats, {1, 2.718281828459045, 0, -1}, {0, 1, -kInf, kNan}},
    {"sqrt", Unary::sqrt, Takes::floats, {4, 2, -1}, {2, 1.4142135623730951, kNan}},
    {"rsqrt", Unary::rsqrt, Takes::floats, {4, 0.25, 0}, {0.5, 2, kInf}},
    {"tanh", Unary::tanh, Takes::floats, {0, 0.5493061443340548, 100}, {0, 0.5, 1}},
    {"sigmoid", Unary::sigmoid, Takes::floats, {0, 1.0986122886681098, -1000, 1000}, {0.5, 0.75, 0, 1}},
    {"relu", Unary::relu, Takes::numbers, {-1, 2, kNan}, {0, 2, kNan}},
    {"gelu", Unary::gelu, Takes::floats, {0, 1, -1}, {0, 0.8413447460685429, -0.15865525393145707}},
    {"logical_not", Unary::logical_not, Takes::all, {0, 2, 1}, {1, 0, 0}},
};

struct BinaryRow {
  std::string name;
  Binary op;
  Takes takes;
  std::vector<double> left, right, expected;
};

const std::vector<BinaryRow> kBinary{
    {"add", Binary::add, Takes::all, {1, -2}, {2.5, 2}, {3.5, 0}},
    {"sub", Binary::sub, Takes::numbers, {1, -2}, {2.5, 2}, {-1.5, -4}},
    {"mul", Binary::mul, Takes::all, {3, -2}, {2.5, 0}, {7.5, 0}},
    {"div", Binary::div, Takes::numbers, {3, 1}, {2, 0}, {1.5, kInf}},
    {"min", Binary::min, Takes::all, {3, 1, kNan, 1}, {2, 4, 1, kNan}, {2, 1, kNan, kNan}},
    {"max", Binary::max, Takes::all, {3, 1, kNan, 1}, {2, 4, 1, kNan}, {3, 4, kNan, kNan}},
    {"pow", Binary::pow, Takes::floats, {2, 9, 5}, {3, 0.5, 0}, {8, 3, 1}},
    {"eq", Binary::eq, Takes::all, {1, 2, kNan}, {1, 3, kNan}, {1, 0, 0}},
    {"ne", Binary::ne, Takes::all, {1, 2, kNan}, {1, 3, kNan}, {0, 1, 1}},
    {"lt", Binary::lt, Takes::all, {1, 2, kNan}, {1, 3, 0}, {0, 1, 0}},
    {"le", Binary::le, Takes::all, {1, 4, kNan}, {1, 3, 0}, {1, 0, 0}},
    {"gt", Binary::gt, Takes::all, {1, 4, kNan}, {1, 3, 0}, {0, 1, 0}},
    {"ge", Binary::ge, Takes::all, {1, 2, kNan}, {1, 3, 0}, {1, 0, 0}},
    {"relu_grad", Binary::relu_grad, Takes::floats, {5, 5, 5}, {2, 0, -1}, {5, 0, 0}},
    {"sigmoid_grad", Binary::sigmoid_grad, Takes::floats, {4, 2}, {0.5, 1}, {1, 0}},
    {"tanh_grad", Binary::tanh_grad, Takes::floats, {4, 2}, {0.5, 1}, {3, 0}},
    {"gelu_grad", Binary::gelu_grad, Takes::floats, {2, 1}, {0, 1}, {1, 1.0833154705876864}},
};

Tensor doubles(const std::vector<double>& v) { return test::from(v, {static_cast<std::int64_t>(v.size())}); }

// The reference's answer for operands that broadcast to the result's shape.
Tensor reference(Binary op, const Tensor& a, const Tensor& b, const Tensor& like) {
  Tensor out = ops::empty_like(like);
  test::reference().binary(op, a.expand(like.shape()), b.expand(like.shape()), out);
  return out;
}

// Near zero a float result carries the rounding of its parts (1 + erf(x) for negative x).
std::string compare(const Tensor& got, const Tensor& expected) {
  return test::differs(got, expected, test::precision(got.dtype()), test::precision(got.dtype()));
}

}  // namespace

TEST_CASE("unary operations equal their known values", "[kernels][elementwise]") {
  for (const UnaryRow& row : kUnary) {
    INFO(row.name);
    const Tensor y = ops::unary(row.op, doubles(row.inputs));
    CHECK(test::differs(ops::cast(y, DType::f64), doubles(row.expected), 1e-14, 1e-15) == "");
  }
}

TEST_CASE("unary operations equal the reference for every dtype and layout", "[kernels][elementwise]") {
  for (const UnaryRow& row : kUnary)
    for (DType dtype : dtypes(row.takes))
      for (const auto& x : test::layouts(7, dtype)) {
        INFO(row.name << " of " << name(dtype) << ", " << x.name);
        const Tensor y = ops::unary(row.op, x.tensor);
        Tensor expected = ops::empty_like(y);
        test::reference().unary(row.op, x.tensor, expected);
        CHECK(compare(y, expected) == "");
      }
}

TEST_CASE("binary operations equal their known values", "[kernels][elementwise]") {
  for (const BinaryRow& row : kBinary) {
    INFO(row.name);
    const Tensor y = ops::binary(row.op, doubles(row.left), doubles(row.right));
    CHECK(test::differs(ops::cast(y, DType::f64), doubles(row.expected), 1e-14) == "");
  }
}

TEST_CASE("binary operations equal the reference for every dtype and pair of layouts",
          "[kernels][elementwise]") {
  for (const BinaryRow& row : kBinary)
    for (DType dtype : dtypes(row.takes)) {
      const auto as = test::layouts(3, dtype);
      auto bs = test::layouts(4, dtype);
      for (auto& b : test::broadcasting(5, dtype)) bs.push_back(b);
      for (const auto& a : as)
        for (const auto& b : bs) {
          INFO(row.name << " of " << name(dtype) << ", " << a.name << " and " << b.name);
          const Tensor y = ops::binary(row.op, a.tensor, b.tensor);
          CHECK(compare(y, reference(row.op, a.tensor, b.tensor, y)) == "");
          const Tensor turned = ops::binary(row.op, b.tensor, a.tensor);
          CHECK(compare(turned, reference(row.op, b.tensor, a.tensor, turned)) == "");
        }
    }
}

TEST_CASE("binary operations with a constant equal those with a tensor of it", "[kernels][elementwise]") {
  for (const BinaryRow& row : kBinary)
    for (DType dtype : dtypes(row.takes))
      for (const auto& a : test::layouts(3, dtype))
        for (double constant : {0.0, 1.0}) {
          INFO(row.name << " of " << name(dtype) << ", " << a.name << " and " << constant);
          CHECK(test::differs_bitwise(ops::binary(row.op, a.tensor, constant),
                                      ops::binary(row.op, a.tensor, test::full({}, constant, dtype))) == "");
          Tensor expected = ops::empty_like(ops::binary(row.op, a.tensor, constant));
          test::reference().binary_scalar(row.op, a.tensor, constant, expected);
          CHECK(compare(ops::binary(row.op, a.tensor, constant), expected) == "");
        }
}

TEST_CASE("a constant is not rounded to a 16-bit tensor's dtype", "[kernels][elementwise]") {
  // 1.001 is 1 in bf16; 1000 * 1.001 = 1001 rounds to 1000 in bf16, 2000 * 1.004 = 2008 does not round to 2000.
  const Tensor x = test::full({3}, 2000, DType::bf16);
  REQUIRE(test::values(ops::mul(x, 1.004)) == std::vector<double>(3, 2008));
}

TEST_CASE("integers wrap, and their division by zero is zero", "[kernels][elementwise]") {
  const Tensor small = test::from<std::int8_t>(std::vector<std::int8_t>{127, -128, 7}, {3});
  const Tensor other = test::from<std::int8_t>(std::vector<std::int8_t>{1, -1, 0}, {3});
  CHECK(test::values(ops::add(small, other)) == std::vector<double>{-128, 127, 7});
  CHECK(test::values(ops::div(small, other)) == std::vector<double>{127, -128, 0});
  CHECK(test::values(ops::unary(Unary::neg, small)) == std::vector<double>{-127, -128, -7});
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const Tensor large = test::from<std::int64_t>(std::vector<std::int64_t>{least, 7}, {2});
  const Tensor divisor = test::from<std::int64_t>(std::vector<std::int64_t>{-1, -2}, {2});
  CHECK(ops::div(large, divisor).to_vector<std::int64_t>() == std::vector<std::int64_t>{least, -3});
}

TEST_CASE("bool adds as or and multiplies as and", "[kernels][elementwise]") {
  const Tensor a = ops::cast(test::from<float>({0, 0, 1, 1}, {4}), DType::boolean);
  const Tensor b = ops::cast(test::from<float>({0, 1, 0, 1}, {4}), DType::boolean);
  CHECK(test::values(ops::add(a, b)) == std::vector<double>{0, 1, 1, 1});
  CHECK(test::values(ops::mul(a, b)) == std::vector<double>{0, 0, 0, 1});
}

TEST_CASE("in-place operations equal the others and bump the version", "[kernels][elementwise]") {
  for (DType dtype : kFloats)
    for (const auto& a : test::layouts(3, dtype)) {
      if (a.name == "expanded") continue;
      for (const auto& b : test::broadcasting(5, dtype)) {
        INFO(name(dtype) << ", " << a.name << " and " << b.name);
        const Tensor expected = ops::mul(a.tensor, b.tensor);
        Tensor out = ops::clone(a.tensor, a.tensor.memory_format());
        const auto version = out.version();
        ops::binary_(Binary::mul, out, b.tensor);
        CHECK(test::differs_bitwise(out, expected) == "");
        CHECK(out.version() == version + 1);
        ops::mul_(out, 2);
        CHECK(test::differs_bitwise(out, ops::mul(expected, 2.0)) == "");
      }
    }
}

TEST_CASE("an in-place operation reads its operand before it overwrites it", "[kernels][elementwise]") {
  Tensor x = test::from<float>({1, 2, 3, 4}, {2, 2});
  ops::add_(x, x.transpose(0, 1));
  CHECK(test::values(x) == std::vector<double>{2, 5, 5, 8});
  ops::add_(x, x);
  CHECK(test::values(x) == std::vector<double>{4, 10, 10, 16});
  ops::binary_(Binary::div, x, x.select(0, 0));
  CHECK(test::values(x) == std::vector<double>{1, 1, 2.5, 1.6f});
}

TEST_CASE("where picks from either side over every layout", "[kernels][elementwise]") {
  for (DType dtype : kAllDTypes)
    for (const auto& condition : test::layouts(9, DType::boolean))
      for (const auto& a : test::layouts(1, dtype)) {
        INFO(name(dtype) << ", " << condition.name << " and " << a.name);
        const Tensor b = test::random({4, 1}, 2, dtype);
        const Tensor y = ops::where(condition.tensor, a.tensor, b);
        Tensor expected = ops::empty_like(y);
        test::reference().where(condition.tensor, a.tensor, b.expand(y.shape()), expected);
        CHECK(test::differs_bitwise(y, expected) == "");
      }
  const Tensor picked =
      ops::where(ops::binary(Binary::gt, ops::arange(4, DType::i64, test::test_device()), 1.0),
                 ops::arange(4, DType::i64, test::test_device()), test::full({}, 9, DType::i64));
  CHECK(test::values(picked) == std::vector<double>{9, 9, 2, 3});
}

TEST_CASE("elementwise operations are right for any length and alignment, and write nothing else",
          "[kernels][elementwise]") {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::u8, DType::i64})
    for (const std::int64_t length : {1, 5, 8, 13, 31, 67, 5003})
      for (const std::int64_t start : {0, 1, 4, 16}) {
        INFO(str(dtype, " ", length, " from ", start));
        const auto part = [&](const Tensor& t) { return t.slice(0, start, start + length); };
        const Shape shape{start + length + 9};
        const Tensor a = test::random(shape, 1, dtype), b = test::random(shape, 2, dtype);
        const Tensor condition = test::random(shape, 3, DType::boolean),
                     outside = test::random(shape, 4, dtype);
        // Each slot writes into the middle of a tensor whose ends are compared as well.
        const auto check = [&](const auto& run) {
          Tensor got = ops::clone(outside), expected = ops::clone(outside);
          Tensor to = part(got), like = part(expected);
          run(test::fast(), to);
          run(test::reference(), like);
          CHECK(compare(got, expected) == "");
        };
        check([&](const KernelTable& k, Tensor& to) { k.unary(Unary::relu, part(a), to); });
        check([&](const KernelTable& k, Tensor& to) { k.binary(Binary::add, part(a), part(b), to); });
        check([&](const KernelTable& k, Tensor& to) {
          k.binary(Binary::mul, part(a), b.slice(0, 0, length), to);
        });
        check([&](const KernelTable& k, Tensor& to) { k.binary_scalar(Binary::max, part(a), 1, to); });
        check([&](const KernelTable& k, Tensor& to) { k.where(part(condition), part(a), part(b), to); });
        check([&](const KernelTable& k, Tensor& to) { k.copy(part(a), to); });
        const Tensor floats = test::random({length}, 5);
        if (dtype != DType::u8) check([&](const KernelTable& k, Tensor& to) { k.copy(floats, to); });
        check([&](const KernelTable& k, Tensor& to) { k.fill(to, 2); });
      }
}

TEST_CASE("large tensors give the same on one thread and on three", "[kernels][elementwise]") {
  const int threads = num_threads();
  const Tensor a = test::random({301, 517}, 1), b = test::random({517, 301}, 2).transpose(0, 1);
  set_num_threads(1);
  const Tensor single = ops::unary(Unary::tanh, ops::add(a, b));
  set_num_threads(3);
  const Tensor triple = ops::unary(Unary::tanh, ops::add(a, b));
  set_num_threads(threads);
  CHECK(test::differs_bitwise(single, triple) == "");
  // Position by position, so that a wrong cut cannot hide.
  const auto x = test::values(a), y = test::values(b), sum = test::values(ops::add(a, b));
  for (std::size_t i = 0; i < sum.size(); ++i)
    if (sum[i] != static_cast<float>(x[i] + y[i])) FAIL("element " << i);
}
