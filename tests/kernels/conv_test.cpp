// SPDX-License-Identifier: MIT
// tests/kernels/conv_test.cpp - convolution against the reference: a table of
// shapes in every dtype and layout.
#include "tests/kernels/compare.h"
#include "tests/support/test.h"

using namespace brigade;
using test::fast;

namespace {

struct Case {
  const char* name;
  std::int64_t batch, in, out, height, width;
  Window window;
  bool bias = false;

  Shape x() const { return {batch, in, height, width}; }
  Shape w() const { return {out, in / window.groups, window.kernel[0], window.kernel[1]}; }
  Shape y() const { return {batch, out, window.out_size(0, height), window.out_size(1, width)}; }
};

const Case kCases[] = {
    {"stem", 2, 3, 16, 9, 11, {.kernel = {3, 3}, .padding = {1, 1}}},
    {"3x3", 2, 16, 16, 8, 8, {.kernel = {3, 3}, .padding = {1, 1}}, true},
    {"3x3, 48 to 32 channels, odd size", 1, 48, 32, 7, 5, {.kernel = {3, 3}, .padding = {1, 1}}, true},
    {"3x3 on 4x4, 64 channels", 2, 64, 64, 4, 4, {.kernel = {3, 3}, .padding = {1, 1}}},
    {"3x3 stride 2, 64 channels", 1, 64, 64, 8, 8, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
    {"3x3 stride 2", 1, 16, 32, 8, 8, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
    {"3x3 stride 2, odd size", 2, 8, 16, 7, 5, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, true},
    {"7x7 stride 2", 1, 3, 8, 17, 15, {.kernel = {7, 7}, .stride = {2, 2}, .padding = {3, 3}}},
    {"1x1", 2, 16, 8, 5, 5, {}, true},
    {"1x1 stride 2, 64 channels", 2, 64, 16, 8, 8, {.stride = {2, 2}}},
    {"1x1 stride 2, 8 channels", 2, 8, 16, 8, 8, {.stride = {2, 2}}},
    {"1x1 stride 2, rows left over", 1, 16, 16, 8, 6, {.stride = {3, 2}}},
    {"dilated", 1, 8, 8, 9, 9, {.kernel = {3, 3}, .padding = {2, 2}, .dilation = {2, 2}}},
    {"groups", 2, 16, 32, 6, 6, {.kernel = {3, 3}, .padding = {1, 1}, .groups = 4}, true},
    {"depthwise", 2, 16, 16, 6, 6, {.kernel = {3, 3}, .padding = {1, 1}, .groups = 16}},
    {"1x1 stride 2, groups of 4", 2, 16, 16, 6, 6, {.stride = {2, 2}, .groups = 4}},
    {"one channel", 3, 1, 8, 8, 8, {.kernel = {3, 3}}},
    {"one channel each way", 1, 1, 1, 6, 6, {.kernel = {3, 3}, .padding = {1, 1}}, true},
    {"one pixel", 2, 8, 8, 1, 1, {.kernel = {3, 3}, .padding = {1, 1}}},
    {"1x3", 1, 3, 4, 5, 7, {.kernel = {1, 3}, .stride = {1, 2}, .padding = {0, 1}}},
};

// f32: at most 576 products of order 1 are summed in f32; errors of 1e-6 of the rms are usual.
// Winograd reaches 2e-5. bf16: inputs are exact, sums are f32, results are rounded to 8 bits; im2col
// rounds parts of dx before adding. f64: the oracle sums in double as well, in another order. f16:
// computed in f32, rounded to 11 bits.
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

// Of the gradient of weights. cuDNN rounds it to the activations' dtype; on the CPU its f32 sums stay.
double weight_tolerance(DType activations) {
  return test::test_device().type == DeviceType::cuda ? tolerance(activations)
                                                      : tolerance(test::parameter_dtype(activations));
}

struct Results {
  Tensor y, dx, dw;
};

Results run(const KernelTable& table, const Case& k, DType dtype, MemoryFormat format) {
  const DType parameters = test::parameter_dtype(dtype);
  const Tensor x = test::random(k.x(), 1, dtype, format), dy = test::random(k.y(), 2, dtype, format);
  const Tensor w = test::weights(k.w(), 3, dtype);
  const Tensor bias = k.bias ? test::weights({k.out}, 4, dtype) : Tensor();
  // NaN shows what a kernel forgets to write.
  Results r{ops::empty_like(dy), ops::empty_like(x), test::empty(k.w(), parameters)};
  for (Tensor* t : {&r.y, &r.dx, &r.dw}) ops::fill_(*t, NAN);
  table.conv2d(x, w, bias, k.window, r.y);
  table.conv2d_grad_input(dy, w, k.window, 0, r.dx);
  table.conv2d_grad_weight(dy, x, k.window, r.dw);
  return r;
}

}  // namespace

TEST_CASE("convolution and its gradients equal the reference for every shape, dtype and layout",
          "[kernels][conv]") {
  for (const Case& k : kCases)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::f16}) {
      const Results expected = run(test::reference(), k, dtype, MemoryFormat::contiguous);
      for (const MemoryFormat format : test::kFormats) {
        CAPTURE(k.name, name(dtype), format == MemoryFormat::channels_last);
        const Results got = run(fast(), k, dtype, format);
        CHECK(test::far_from(got.y, expected.y, tolerance(dtype)) == "");
        CHECK(test::far_from(got.dx, expected.dx, tolerance(dtype)) == "");
        CHECK(test::far_from(got.dw, expected.dw, weight_tolerance(dtype)) == "");
      }
    }
}

// oneDNN 2.6 hangs, crashes or corrupts the heap here when asked directly, and not every time.
TEST_CASE("1x1 stride 2 on few channels_last channels is right on every repeat", "[kernels][conv]") {
  for (const std::int64_t channels : {1, 3, 8, 15}) {
    const Case k{"", 2, channels, 16, 16, 16, {.stride = {2, 2}}};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(channels, name(dtype));
      const Results expected = run(test::reference(), k, dtype, MemoryFormat::channels_last);
      for (int i = 0; i < 25; ++i) {
        const Results got = run(fast(), k, dtype, MemoryFormat::channels_last);
        REQUIRE(test::far_from(got.dw, expected.dw, weight_tolerance(dtype)) == "");
      }
    }
  }
}

// What oneDNN 2.6 gets wrong in bf16 or dies of when asked directly: a product of 34 columns, 63 rows deep; kernel
// positions that see nothing, whose gradients it leaves unwritten; dilated kernels; channels that fill no block.
TEST_CASE("the bf16 weight gradients that break oneDNN are right", "[kernels][conv]") {
  const Case cases[] = {
      {"SIGILL in a product", 7, 34, 34, 3, 3, {.kernel = {3, 3}, .padding = {1, 1}}},
      {"SIGILL, 58 to 47", 7, 58, 47, 3, 3, {.kernel = {3, 3}, .padding = {1, 1}}},
      {"positions that see nothing",
       8,
       64,
       16,
       1,
       1,
       {.kernel = {5, 5}, .stride = {2, 2}, .padding = {2, 2}}},
      {"7x7 stem on one pixel", 8, 3, 64, 1, 1, {.kernel = {7, 7}, .stride = {2, 2}, .padding = {3, 3}}},
      {"dilated", 4, 72, 16, 16, 16, {.kernel = {3, 3}, .padding = {1, 1}, .dilation = {2, 2}}},
      {"stride 1 by 3 on a column",
       18,
       59,
       64,
       3,
       1,
       {.kernel = {3, 3}, .stride = {1, 3}, .padding = {1, 1}}},
  };
  for (const Case& k : cases) {
    CAPTURE(k.name);
    const Results expected = run(test::reference(), k, DType::bf16, MemoryFormat::channels_last);
    for (int i = 0; i < 5; ++i) {
      const Results got = run(fast(), k, DType::bf16, MemoryFormat::channels_last);
      REQUIRE(test::far_from(got.dw, expected.dw, weight_tolerance(DType::bf16)) == "");
    }
  }
}

TEST_CASE("alternating shapes and windows each get their own primitive", "[kernels][conv]") {
  // Equal sizes of every tensor's batch, channels and input; only window, bias, dtype or layout differ.
  const Case a{"", 2, 16, 16, 6, 6, {.kernel = {3, 3}, .padding = {1, 1}}};
  const Case b{"", 2, 16, 16, 6, 6, {.kernel = {3, 3}, .padding = {2, 2}, .dilation = {2, 2}}};
  const Case c{"", 2, 16, 16, 6, 6, {.kernel = {3, 3}, .padding = {1, 1}, .groups = 2}};
  const Case d{"", 2, 16, 16, 6, 6, {.kernel = {3, 3}, .padding = {1, 1}}, true};
  for (int round = 0; round < 2; ++round)
    for (const Case* k : {&a, &b, &c, &d})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const MemoryFormat format : test::kFormats) {
          const Results expected = run(test::reference(), *k, dtype, format),
                        got = run(fast(), *k, dtype, format);
          REQUIRE(test::far_from(got.y, expected.y, tolerance(dtype)) == "");
          REQUIRE(test::far_from(got.dx, expected.dx, tolerance(dtype)) == "");
          REQUIRE(test::far_from(got.dw, expected.dw, weight_tolerance(dtype)) == "");
        }
}

TEST_CASE("a convolution repeats bit for bit", "[kernels][conv]") {
  for (const Case& k : kCases)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(k.name, name(dtype));
      const Results a = run(fast(), k, dtype, MemoryFormat::channels_last);
      const Results b = run(fast(), k, dtype, MemoryFormat::channels_last);
      REQUIRE(test::differs_bitwise(a.y, b.y) == "");
      REQUIRE(test::differs_bitwise(a.dx, b.dx) == "");
      REQUIRE(test::differs_bitwise(a.dw, b.dw) == "");
    }
}

TEST_CASE("convolution takes activations of any strides and writes into a slice of a larger buffer",
          "[kernels][conv]") {
  const Window window{.kernel = {3, 3}, .padding = {1, 1}};
  const Tensor wide = test::random({2, 8, 6, 12}, 1), x = wide.slice(3, 0, 12, 2),
               w = test::random({4, 8, 3, 3}, 2);
  Tensor y = test::empty({2, 4, 6, 6}), expected = ops::empty_like(y);
  fast().conv2d(x, w, {}, window, y);
  test::reference().conv2d(x, w, {}, window, expected);
  REQUIRE(test::far_from(y, expected, 1e-5) == "");

  // A gradient is a view of bucket memory: its neighbours must stay untouched.
  Tensor bucket = test::full({16 + 4 * 8 * 9 + 16}, 7),
         dw = bucket.slice(0, 16, 16 + 4 * 8 * 9).view({4, 8, 3, 3});
  Tensor expected_dw = test::empty(dw.shape());
  fast().conv2d_grad_weight(y, x, window, dw);
  test::reference().conv2d_grad_weight(y, x, window, expected_dw);
  REQUIRE(test::far_from(dw, expected_dw, 1e-5) == "");
  REQUIRE(test::values(bucket.slice(0, 0, 16)) == std::vector<double>(16, 7));
  REQUIRE(test::values(bucket.slice(0, 16 + 4 * 8 * 9, 32 + 4 * 8 * 9)) == std::vector<double>(16, 7));
}

TEST_CASE("convolution adds to a gradient of any strides and dtype, and leaves its neighbours alone",
          "[kernels][conv]") {
  const Case k{"", 2, 16, 8, 6, 6, {.kernel = {3, 3}, .padding = {1, 1}}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    CAPTURE(name(dtype));
    const Tensor dy = test::random(k.y(), 1, dtype), w = test::weights(k.w(), 2, dtype);
    Tensor wide = test::random({2, 16, 6, 12}, 3, dtype), dx = wide.slice(3, 0, 12, 2);
    const Tensor neighbours = wide.slice(3, 1, 12, 2), before = ops::clone(neighbours);
    Tensor expected = ops::clone(dx);
    test::reference().conv2d_grad_input(dy, w, k.window, 1, expected);
    fast().conv2d_grad_input(dy, w, k.window, 1, dx);
    REQUIRE(test::far_from(dx, expected, tolerance(dtype)) == "");
    REQUIRE(test::differs_bitwise(neighbours, before) == "");
  }
}

TEST_CASE("add_conv2d_grad_input counts as a change of its result and names what does not fit",
          "[kernels][conv][error]") {
  const Window window{.kernel = {3, 3}, .padding = {1, 1}};
  const Tensor dy = test::random({2, 8, 6, 6}, 1), w = test::random({8, 4, 3, 3}, 2);
  Tensor dx = test::full({2, 4, 6, 6}, 0);
  const std::uint64_t version = dx.version();
  ops::add_conv2d_grad_input(dy, w, window, dx);
  REQUIRE(dx.version() > version);
  REQUIRE(test::differs_bitwise(dx, ops::conv2d_grad_input(dy, w, window, dx.shape())) == "");

  const auto adding_to = [&](Tensor to) { ops::add_conv2d_grad_input(dy, w, window, to); };
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(adding_to(test::full({2, 4, 6, 6}, 0, DType::bf16)),
                    Contains("add_conv2d_grad_input") && Contains("dtypes"));
  CHECK_THROWS_WITH(adding_to(test::full({2, 5, 6, 6}, 0)), Contains("[2, 5, 6, 6]"));
  CHECK_THROWS_WITH(adding_to(test::full({2, 4, 6, 12}, 0).slice(3, 0, 12, 2)), Contains("dx must be dense"));
}
