// SPDX-License-Identifier: MIT
// tests/kernels/reduce_test.cpp - reductions over all subsets of dims, all dtypes and layouts, long and short.
#include <cmath>

#include "core/parallel.h"
#include "tests/kernels/layouts.h"
#include "tests/support/test.h"

using namespace brigade;
using ops::KeepDims;

namespace {

constexpr Reduction kReductions[] = {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min,
                                     Reduction::prod};
const char* name(Reduction op) {
  static constexpr const char* kNames[] = {"sum", "mean", "max", "min", "prod"};
  return kNames[static_cast<int>(op)];
}

bool defined_for(Reduction op, DType dtype) {
  if (op == Reduction::max || op == Reduction::min) return true;
  return op == Reduction::mean ? is_floating(dtype) : dtype != DType::boolean;
}

Tensor reference(Reduction op, const Tensor& x, const Shape& shape) {
  Tensor out = test::empty(shape, x.dtype());
  test::reference().reduce(op, x, out);
  return out;
}

// Totals are double on both sides; only the order of summing and the last rounding differ.
std::string compare(const Tensor& got, const Tensor& expected) {
  const double tolerance = got.dtype() == DType::f64 ? 1e-12 : test::precision(got.dtype());
  return test::differs(got, expected, tolerance,
                       got.dtype() == DType::f64 || got.dtype() == DType::f32 ? 1e-12 : 0);
}

double reference_squares(const Tensor& x) {
  Tensor sum = test::empty({1}, DType::f64);
  test::reference().sum_of_squares(x, sum);
  return sum.item();
}

}  // namespace

TEST_CASE("reductions equal their known values", "[kernels][reduce]") {
  const Tensor x = test::from<float>({1, -2, 3, 4, 5, 0.5f}, {2, 3});
  CHECK(test::values(ops::reduce(Reduction::sum, x, {1})) == std::vector<double>{2, 9.5});
  CHECK(test::values(ops::reduce(Reduction::sum, x, {0})) == std::vector<double>{5, 3, 3.5});
  CHECK(test::values(ops::reduce(Reduction::mean, x, {0})) == std::vector<double>{2.5, 1.5, 1.75});
  CHECK(test::values(ops::reduce(Reduction::max, x, {-1})) == std::vector<double>{3, 5});
  CHECK(test::values(ops::reduce(Reduction::min, x)) == std::vector<double>{-2});
  CHECK(test::values(ops::reduce(Reduction::prod, x, {1})) == std::vector<double>{-6, 10});
  CHECK(ops::reduce(Reduction::sum, x, {1}).shape() == Shape{2});
  CHECK(ops::reduce(Reduction::sum, x, {1}, KeepDims::yes).shape() == Shape{2, 1});
  CHECK(ops::reduce(Reduction::sum, x).shape() == Shape{});
}

TEST_CASE("reductions equal the reference over every subset of dims, dtype and layout", "[kernels][reduce]") {
  for (Reduction op : kReductions)
    for (DType dtype : kAllDTypes) {
      if (!defined_for(op, dtype)) continue;
      for (const auto& x : test::layouts(8, dtype))
        for (int subset = 1; subset < 16; ++subset) {
          Dims dims;
          Shape shape = x.tensor.shape();
          for (int d = 0; d < 4; ++d)
            if ((subset >> d & 1) != 0) {
              dims.push_back(d);
              shape[d] = 1;
            }
          INFO(name(op) << " of " << brigade::name(dtype) << ", " << x.name << ", over " << str(dims));
          CHECK(compare(ops::reduce(op, x.tensor, dims, KeepDims::yes), reference(op, x.tensor, shape)) ==
                "");
        }
    }
}

TEST_CASE("long reductions equal the reference and do not depend on the number of threads",
          "[kernels][reduce]") {
  struct Case {
    Tensor x;
    Dims dims;
  };
  const Tensor image = test::random({16, 33, 24, 24}, 4, DType::f32, MemoryFormat::channels_last);
  const std::vector<Case> cases{
      {test::random({300001}, 1), {0}},
      {test::random({3, 70001}, 2), {1}},
      {test::random({70001, 3}, 3), {0}},
      {test::random({1000, 300}, 3), {0}},
      {test::random({300, 1000}, 3), {1}},
      {image, {0, 2, 3}},
      {ops::clone(image), {0, 2, 3}},
      {image, {1}},
      {image, {0, 1, 2, 3}},
      {test::random({90, 7, 500}, 5), {0, 2}},
      {test::random({90, 7, 500}, 5), {1}},
      {test::random({400, 700}, 6, DType::bf16), {0}},
  };
  const int threads = num_threads();
  for (const Case& c : cases) {
    INFO(str(c.x, " over ", c.dims));
    Shape shape = c.x.shape();
    for (std::int64_t d : c.dims) shape[static_cast<int>(d)] = 1;
    set_num_threads(1);
    const Tensor single = ops::reduce(Reduction::sum, c.x, c.dims, KeepDims::yes);
    set_num_threads(3);
    const Tensor triple = ops::reduce(Reduction::sum, c.x, c.dims, KeepDims::yes);
    set_num_threads(threads);
    CHECK(test::differs_bitwise(single, triple) == "");
    CHECK(compare(single, reference(Reduction::sum, c.x, shape)) == "");
  }
}

TEST_CASE("a NaN is the maximum and the minimum of its group", "[kernels][reduce]") {
  for (std::int64_t size : {3, 100})
    for (std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
      Tensor x = test::full({size}, 1);
      Tensor place = x.select(0, at);
      ops::fill_(place, NAN);
      INFO(size << " values, NaN at " << at);
      CHECK(std::isnan(ops::reduce(Reduction::max, x).item()));
      CHECK(std::isnan(ops::reduce(Reduction::min, x).item()));
      CHECK(ops::argmax(x, 0).item() == static_cast<double>(at));
    }
}

TEST_CASE("of nothing, the sum is 0, the product 1, the mean NaN, and a maximum is an error",
          "[kernels][reduce]") {
  const Tensor x = test::empty({3, 0});
  CHECK(test::values(ops::reduce(Reduction::sum, x, {1})) == std::vector<double>{0, 0, 0});
  CHECK(test::values(ops::reduce(Reduction::prod, x, {1})) == std::vector<double>{1, 1, 1});
  CHECK(std::isnan(ops::reduce(Reduction::mean, x).item()));
  CHECK(ops::reduce(Reduction::max, x, {0}).numel() == 0);
  CHECK_THROWS_WITH(ops::reduce(Reduction::max, x, {1}),
                    ContainsSubstring("max") && ContainsSubstring("[3, 0]"));
  CHECK_THROWS_WITH(ops::argmax(x, 1), ContainsSubstring("argmax") && ContainsSubstring("[3, 0]"));
  CHECK(ops::sum_of_squares(x) == 0);
}

TEST_CASE("argmax is the first of equals, over every dim, dtype and layout", "[kernels][reduce]") {
  CHECK(test::values(ops::argmax(test::from<float>({1, 5, 5, 7, 2, 7}, {2, 3}), 1)) ==
        std::vector<double>{1, 0});
  for (DType dtype : kAllDTypes)
    for (const auto& x : test::layouts(8, dtype))
      for (int dim = 0; dim < 4; ++dim) {
        INFO(brigade::name(dtype) << ", " << x.name << ", dim " << dim);
        const Tensor got = ops::argmax(x.tensor, dim, KeepDims::yes);
        Tensor expected = ops::empty_like(got);
        test::reference().argmax(x.tensor, dim, expected);
        CHECK(test::differs_bitwise(got, expected) == "");
      }
}

TEST_CASE("sum_of_squares is the same for any number of threads and any cut into blocks",
          "[kernels][reduce]") {
  CHECK(ops::sum_of_squares(test::from<float>({3, -4}, {2})) == 25);
  const int threads = num_threads();
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor x = test::random({5, 40007}, 3, dtype);
    set_num_threads(1);
    const double single = ops::sum_of_squares(x), strided = ops::sum_of_squares(x.slice(1, 0, 40007, 2));
    set_num_threads(3);
    CHECK(ops::sum_of_squares(x) == single);
    CHECK(ops::sum_of_squares(x.slice(1, 0, 40007, 2)) == strided);
    set_num_threads(threads);
    CHECK(std::abs(single / reference_squares(x) - 1) < 1e-12);
    CHECK(std::abs(strided / reference_squares(x.slice(1, 0, 40007, 2)) - 1) < 1e-12);
  }
}

TEST_CASE("sum_to undoes broadcasting", "[kernels][reduce]") {
  const Tensor x = test::random({2, 3, 4}, 1, DType::f64);
  for (const Shape& shape :
       {Shape{}, Shape{4}, Shape{3, 1}, Shape{1, 4}, Shape{2, 1, 4}, Shape{2, 3, 4}, Shape{1, 1, 1}}) {
    INFO(str(shape));
    const Tensor got = ops::sum_to(x, shape);
    CHECK(got.shape() == shape);
    // <sum_to(x), b> = <x, broadcast b> for every b.
    const Tensor b = test::random(shape, 2, DType::f64);
    const double left = ops::reduce(Reduction::sum, ops::mul(got, b)).item();
    const double right = ops::reduce(Reduction::sum, ops::mul(x, b)).item();
    CHECK(std::abs(left - right) < 1e-12);
  }
  CHECK_THROWS_WITH(ops::sum_to(x, {5}), ContainsSubstring("[2, 3, 4]") && ContainsSubstring("[5]"));
}
