// SPDX-License-Identifier: MIT
// tests/kernels/matmul_test.cpp - matrix products against the reference: sizes, dtypes, strides, batches.
#include "core/parallel.h"
#include "tests/kernels/compare.h"
#include "tests/support/test.h"

using namespace brigade;
using test::fast;

namespace {

// f32: at most 300 products of order 1 summed in f32. bf16, f16: f32 sums of exact inputs, then one rounding.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-13;
    case DType::f32:
      return 1e-5;
    default:
      return 1e-2;
  }
}

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f64, DType::f16};

// Both tables on the same operands; `out` gives shape, strides and old values of the result.
void compare(const Tensor& a, const Tensor& b, double beta, const Tensor& out) {
  Tensor expected = ops::clone(out);
  test::reference().matmul(a, b, beta, expected);
  Tensor got = out;
  fast().matmul(a, b, beta, got);
  if (is_floating(a.dtype()))
    CHECK(test::far_from(got, expected, tolerance(a.dtype())) == "");
  else
    CHECK(test::differs_bitwise(got, expected) == "");
}

}  // namespace

TEST_CASE("matmul equals the reference for odd and even sizes, overwriting and adding", "[kernels][matmul]") {
  const Shape sizes[] = {{1, 1, 1},   {1, 7, 5},    {5, 1, 3},    {3, 4, 1},
                         {17, 33, 9}, {64, 64, 64}, {30, 300, 10}};
  for (const DType dtype : kFloats)
    for (const Shape& s : sizes)
      for (const double beta : {0.0, 1.0}) {
        CAPTURE(name(dtype), s[0], s[1], s[2], beta);
        const Tensor out = test::random({s[0], s[2]}, 3, dtype);
        if (beta == 0) ops::fill_(const_cast<Tensor&>(out), NAN);  // beta 0 must not read what was there.
        compare(test::random({s[0], s[1]}, 1, dtype), test::random({s[1], s[2]}, 2, dtype), beta, out);
      }
}

TEST_CASE("matmul takes transposed, padded, strided and repeated operands", "[kernels][matmul]") {
  for (const DType dtype : kFloats) {
    CAPTURE(name(dtype));
    const Tensor a = test::random({6, 9}, 1, dtype), b = test::random({9, 5}, 2, dtype);
    const Tensor at = test::random({9, 6}, 3, dtype).transpose(0, 1),
                 bt = test::random({5, 9}, 4, dtype).transpose(0, 1);
    const Tensor padded = test::random({6, 20}, 5, dtype).slice(1, 4, 13);
    const Tensor strided = test::random({6, 27}, 6, dtype).slice(1, 0, 27, 3);
    const Tensor row = test::random({1, 9}, 7, dtype).expand({6, 9});
    for (const Tensor& left : {a, at, padded, strided, row})
      for (const Tensor& right : {b, bt})
        for (const double beta : {0.0, 1.0}) {
          compare(left, right, beta, test::random({6, 5}, 8, dtype));
          compare(left, right, beta, test::random({5, 6}, 9, dtype).transpose(0, 1));
          compare(left, right, beta, test::random({6, 11}, 10, dtype).slice(1, 3, 8));
        }
  }
}

TEST_CASE("matmul multiplies batches of matrices, also permuted and broadcast ones", "[kernels][matmul]") {
  for (const DType dtype : kFloats) {
    CAPTURE(name(dtype));
    const Tensor a = test::random({2, 3, 4, 5}, 1, dtype), b = test::random({2, 3, 5, 6}, 2, dtype);
    compare(a, b, 0, test::random({2, 3, 4, 6}, 3, dtype));
    compare(a, b, 1, test::random({2, 3, 4, 6}, 3, dtype));
    // Attention's operands: heads were split from the last dim.
    const Tensor q = test::random({2, 4, 3, 5}, 4, dtype).permute({0, 2, 1, 3});
    const Tensor k = test::random({2, 4, 3, 5}, 5, dtype).permute({0, 2, 3, 1});
    compare(q, k, 0, test::random({2, 3, 4, 4}, 6, dtype));
    compare(a, test::random({5, 6}, 7, dtype).expand({2, 3, 5, 6}), 0, test::random({2, 3, 4, 6}, 8, dtype));
    compare(test::random({4, 5}, 9, dtype).expand({2, 3, 4, 5}), b, 0, test::random({2, 3, 4, 6}, 10, dtype));
    compare(test::random({2, 1, 4, 5}, 11, dtype).expand({2, 3, 4, 5}), b, 1,
            test::random({2, 3, 4, 6}, 12, dtype));
  }
}

// oneDNN 2.6 gets some of these wrong on AMX tiles: x wT with 49 to 63 columns on three threads and more.
TEST_CASE("bf16 products are right for any number of columns and threads", "[kernels][matmul]") {
  const int before = num_threads();
  for (int threads = 1; threads <= 4; ++threads)
    for (std::int64_t columns = 33; columns <= 65; ++columns) {
      CAPTURE(threads, columns);
      set_num_threads(threads);
      const Tensor a = test::random({20, 64}, 1, DType::bf16);
      const Tensor bt = test::random({columns, 64}, 2, DType::bf16).transpose(0, 1);
      compare(a, bt, 0, test::empty({20, columns}, DType::bf16));
    }
  set_num_threads(before);
}

TEST_CASE("matmul over an empty inner dim is zero and adds nothing", "[kernels][matmul]") {
  for (const DType dtype : kFloats) {
    Tensor out = test::full({2, 3}, 5, dtype);
    fast().matmul(test::empty({2, 0}, dtype), test::empty({0, 3}, dtype), 1, out);
    CHECK(test::values(out) == std::vector<double>(6, 5));
    fast().matmul(test::empty({2, 0}, dtype), test::empty({0, 3}, dtype), 0, out);
    CHECK(test::values(out) == std::vector<double>(6, 0));
  }
}

TEST_CASE("matmul of integers is exact", "[kernels][matmul]") {
  compare(test::random({5, 7}, 1, DType::i64), test::random({7, 4}, 2, DType::i64), 0,
          test::random({5, 4}, 3, DType::i64));
}

TEST_CASE("linear and its gradients equal the reference, and bf16 weights' gradients stay f32",
          "[kernels][linear]") {
  for (const DType dtype : kFloats)
    for (const auto& [has_bias, then] : {std::pair{false, Activation::none},
                                         {true, Activation::none},
                                         {false, Activation::relu},
                                         {true, Activation::relu}})
      for (const std::int64_t rows : {1, 5, 32}) {
        CAPTURE(name(dtype), has_bias, then, rows);
        const DType parameters = test::parameter_dtype(dtype);
        const Tensor x = test::random({rows, 48}, 1, dtype), dy = test::random({rows, 10}, 2, dtype);
        const Tensor w = test::weights({10, 48}, 3, dtype);
        const Tensor bias = has_bias ? test::random({10}, 4, parameters) : Tensor();
        Tensor y = ops::empty_like(dy), dx = ops::empty_like(x), dw = test::empty({10, 48}, parameters);
        Tensor ey = ops::empty_like(dy), edx = ops::empty_like(x), edw = ops::empty_like(dw);
        fast().linear(x, w, bias, then, y);
        fast().linear_grad_input(dy, w, dx);
        fast().linear_grad_weight(dy, x, dw);
        test::reference().linear(x, w, bias, then, ey);
        test::reference().linear_grad_input(dy, w, edx);
        test::reference().linear_grad_weight(dy, x, edw);
        CHECK(test::far_from(y, ey, tolerance(dtype)) == "");
        CHECK(test::far_from(dx, edx, tolerance(dtype)) == "");
        CHECK(test::far_from(dw, edw, tolerance(parameters)) == "");
      }
}

TEST_CASE("a ReLU that linear ends with has the bits of one behind it, and a NaN stays a NaN",
          "[kernels][linear]") {
  for (const DType dtype : kFloats)
    for (const std::int64_t inner : {0, 3, 48}) {
      CAPTURE(name(dtype), inner);
      Tensor x = test::random({6, inner}, 1, dtype);
      if (inner > 0) {
        Tensor one = x.slice(0, 2, 3).slice(1, 1, 2);
        ops::fill_(one, NAN);
      }
      const Tensor w = test::weights({10, inner}, 2, dtype);
      const Tensor bias = test::random({10}, 3, test::parameter_dtype(dtype));
      for (const Tensor& b : {bias, Tensor()}) {
        const Tensor y = ops::linear(x, w, b, Activation::relu);
        CHECK(test::differs_bitwise(y, ops::unary(Unary::relu, ops::linear(x, w, b))) == "");
        std::int64_t nans = 0;
        for (const double value : test::values(y)) nans += std::isnan(value);
        CHECK(nans == (inner > 0 ? 10 : 0));
      }
    }
}

TEST_CASE("a bias gradient sums all but the channels in both layouts", "[kernels][bias_grad]") {
  for (const DType dtype : kFloats)
    for (const Shape& shape : {Shape{5, 7}, Shape{700, 33}, Shape{3, 7, 5, 9}, Shape{2, 64, 40, 41}})
      for (const MemoryFormat format : test::kFormats) {
        if (shape.size() == 2 && format == MemoryFormat::channels_last) continue;
        CAPTURE(name(dtype), shape[0], shape[1]);
        const Tensor dy = test::random(shape, 1, dtype, format);
        Tensor db = test::empty({shape[1]}, test::parameter_dtype(dtype)), expected = ops::empty_like(db);
        fast().bias_grad(dy, db);
        test::reference().bias_grad(dy, expected);
        CHECK(test::far_from(db, expected, dtype == DType::f64 ? 1e-12 : 1e-5) == "");
      }
}
