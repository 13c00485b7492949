// SPDX-License-Identifier: MIT
// tests/kernels/pool_test.cpp - pooling against the reference, and its rules about ties, NaN and padding.
#include "tests/kernels/compare.h"
#include "tests/support/test.h"

using namespace brigade;
using test::fast;

namespace {

// Sums of at most 81 terms in f32; 16-bit results are rounded once.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-14;
    case DType::f32:
      return 1e-6;
    default:
      return 1e-2;
  }
}

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f64, DType::f16};

const Window kWindows[] = {
    {.kernel = {2, 2}, .stride = {2, 2}},
    {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
    {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}},
    {.kernel = {1, 1}, .stride = {2, 2}},
    {.kernel = {2, 2}, .stride = {1, 1}, .padding = {1, 1}, .dilation = {2, 2}},
};

Tensor pooled(const Tensor& x, const Window& w, DType dtype, MemoryFormat format) {
  return test::empty({x.size(0), x.size(1), w.out_size(0, x.size(2)), w.out_size(1, x.size(3))}, dtype,
                     format);
}

}  // namespace

TEST_CASE("pooling equals the reference for every window, dtype and layout", "[kernels][pool]") {
  for (const DType dtype : kFloats)
    for (const MemoryFormat format : test::kFormats)
      for (const Window& window : kWindows)
        for (const std::int64_t channels : {1, 5, 70}) {
          CAPTURE(name(dtype), window.kernel[0], window.stride[1], window.dilation[0], channels);
          const Tensor x = test::random({2, channels, 9, 7}, 1, dtype, format);
          Tensor y = pooled(x, window, dtype, format), index = pooled(x, window, DType::i64, format);
          Tensor ey = ops::empty_like(y), eindex = ops::empty_like(index);
          fast().max_pool2d(x, window, y, index);
          test::reference().max_pool2d(x, window, ey, eindex);
          CHECK(test::differs_bitwise(y, ey) == "");
          CHECK(test::differs_bitwise(index, eindex) == "");

          const Tensor dy = test::random(y.shape(), 2, dtype, format);
          Tensor dx = ops::empty_like(x), edx = ops::empty_like(x);
          fast().max_pool2d_grad(dy, index, window, dx);
          test::reference().max_pool2d_grad(dy, index, window, edx);
          CHECK(test::far_from(dx, edx, tolerance(dtype)) == "");

          fast().avg_pool2d(x, window, y);
          test::reference().avg_pool2d(x, window, ey);
          CHECK(test::far_from(y, ey, tolerance(dtype)) == "");
          fast().avg_pool2d_grad(dy, window, dx);
          test::reference().avg_pool2d_grad(dy, window, edx);
          CHECK(test::far_from(dx, edx, tolerance(dtype)) == "");
        }
}

TEST_CASE("adaptive average pooling equals the reference, global and with uneven windows",
          "[kernels][pool]") {
  for (const DType dtype : kFloats)
    for (const MemoryFormat format : test::kFormats)
      for (const Dims& out : {Dims{1, 1}, Dims{3, 2}, Dims{9, 7}, Dims{11, 4}}) {
        CAPTURE(name(dtype), out[0], out[1]);
        const Tensor x = test::random({2, 300, 9, 7}, 1, dtype, format);  // More channels than one piece.
        const Tensor dy = test::random({2, 300, out[0], out[1]}, 2, dtype, format);
        Tensor y = ops::empty_like(dy), ey = ops::empty_like(dy), dx = ops::empty_like(x),
               edx = ops::empty_like(x);
        fast().adaptive_avg_pool2d(x, y);
        test::reference().adaptive_avg_pool2d(x, ey);
        CHECK(test::far_from(y, ey, tolerance(dtype)) == "");
        fast().adaptive_avg_pool2d_grad(dy, dx);
        test::reference().adaptive_avg_pool2d_grad(dy, edx);
        CHECK(test::far_from(dx, edx, tolerance(dtype)) == "");
      }
}

TEST_CASE("max pooling keeps the first of equals, lets a NaN win and sees -inf", "[kernels][pool]") {
  const float inf = INFINITY, nan = NAN;
  const Tensor x = test::from<float>({1, 1, 0, nan, -inf, -inf,  //
                                      1, 0, 2, 3, -inf, -inf},
                                     {1, 1, 2, 6});
  const Window window{.kernel = {2, 2}, .stride = {2, 2}};
  Tensor y = test::empty({1, 1, 1, 3}), index = test::empty({1, 1, 1, 3}, DType::i64);
  fast().max_pool2d(x, window, y, index);
  REQUIRE(index.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 3, 4});
  REQUIRE(y.to_vector<float>()[0] == 1);
  REQUIRE(std::isnan(y.to_vector<float>()[1]));
  REQUIRE(y.to_vector<float>()[2] == -inf);
}

TEST_CASE("average pooling counts padding as zeros", "[kernels][pool]") {
  const Tensor x = test::full({1, 1, 2, 2}, 4);
  Tensor y = test::empty({1, 1, 2, 2});
  fast().avg_pool2d(x, {.kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}}, y);
  REQUIRE(test::values(y) == std::vector<double>(4, 1));
}
