// SPDX-License-Identifier: MIT
// tests/kernels/packed_conv_test.cpp - convolution for inference and quantisation against the reference.
#include "kernels/packed_conv.h"

#include <cmath>
#include <limits>
#include <thread>

#include "core/parallel.h"
#include "tests/kernels/compare.h"
#include "tests/support/skip.h"
#include "tests/support/test.h"

using namespace brigade;
using test::fast;

namespace {

constexpr Window k3x3{.kernel = {3, 3}, .padding = {1, 1}};
constexpr Window k3x3Stride2{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};

struct Case {
  const char* name;
  std::int64_t images, in, out, height, width;
  Window window;

  Shape w() const { return {out, in / window.groups, window.kernel[0], window.kernel[1]}; }
  Shape y() const { return {images, out, window.out_size(0, height), window.out_size(1, width)}; }
};

// On both sides of what decides between a direct convolution, Winograd and a product of patches.
const Case kCases[] = {
    {"stem", 2, 3, 16, 9, 11, k3x3},
    {"3x3, 32 channels", 2, 32, 32, 8, 8, k3x3},
    {"3x3, 48 to 40 channels, odd size", 3, 48, 40, 7, 5, k3x3},
    {"3x3 on 4x4", 2, 64, 64, 4, 4, k3x3},
    {"3x3 to 4x4", 1, 32, 64, 8, 8, k3x3Stride2},
    {"3x3 stride 2, odd size", 2, 16, 32, 9, 13, k3x3Stride2},
    {"7x7 stride 2", 1, 3, 16, 17, 15, {.kernel = {7, 7}, .stride = {2, 2}, .padding = {3, 3}}},
    {"1x1", 2, 16, 8, 6, 5, {}},
    {"1x1 stride 2", 2, 64, 16, 8, 8, {.stride = {2, 2}}},
    {"dilated", 1, 16, 16, 9, 9, {.kernel = {3, 3}, .padding = {2, 2}, .dilation = {2, 2}}},
    {"dilated to 3x3", 1, 16, 16, 3, 3, {.kernel = {3, 3}, .padding = {2, 2}, .dilation = {2, 2}}},
    {"groups", 2, 32, 32, 6, 6, {.kernel = {3, 3}, .padding = {1, 1}, .groups = 2}},
    {"one pixel", 2, 8, 8, 1, 1, k3x3},
};

struct Ending {
  bool relu, residual;
};
constexpr Ending kEndings[] = {{false, false}, {true, false}, {false, true}, {true, true}};

// All values of a byte.
Tensor bytes(const Shape& shape, std::uint64_t seed, DType dtype) {
  const Tensor wide = ops::mul(test::random(shape, seed), 60);
  return ops::quantize(wide, 1, dtype,
                       shape.size() == 4 ? MemoryFormat::channels_last : MemoryFormat::contiguous);
}

struct Problem {
  Tensor x;
  PackedConvSpec spec;
  Tensor residual;
};

Problem floats(const Case& k, DType dtype, Ending ending) {
  Problem p{test::random({k.images, k.in, k.height, k.width}, 1, dtype, MemoryFormat::channels_last),
            {.weight = test::weights(k.w(), 2, dtype),
             .bias = test::weights({k.out}, 3, dtype),
             .window = k.window,
             .in = dtype,
             .out = dtype,
             .relu = ending.relu},
            {}};
  if (!ending.residual) return p;
  p.spec.residual = {.dtype = dtype};
  p.residual = test::random(k.y(), 4, dtype, MemoryFormat::channels_last);
  return p;
}

Problem integers(const Case& k, DType in, DType out, Ending ending, DType residual = DType::u8) {
  Problem p{bytes({k.images, k.in, k.height, k.width}, 1, in),
            {.weight = bytes(k.w(), 2, DType::i8),
             .bias = ops::mul(test::random({k.out}, 3), 20),
             .window = k.window,
             .in = in,
             .out = out,
             .relu = ending.relu,
             .scale = ops::mul(ops::unary(Unary::abs, test::random({k.out}, 5)), 0.001)},
            {}};
  if (!ending.residual) return p;
  p.spec.residual = {.dtype = residual, .scale = 0.7};
  p.residual = bytes(k.y(), 4, residual);
  return p;
}

Tensor run(const KernelTable& table, const Problem& p) {
  const auto conv = table.pack_conv2d(p.spec);
  return ops::packed_conv2d(
      *conv, p.x, p.residual.defined() ? ops::clone(p.residual, MemoryFormat::channels_last) : Tensor());
}

bool has_int8() { return fast().can_pack_conv2d(DType::u8); }

// The largest difference of two integer tensors, and how many elements differ at all.
struct Difference {
  double largest = 0;
  int count = 0;
};
Difference difference(const Tensor& a, const Tensor& b) {
  Difference d;
  const auto x = test::values(a), y = test::values(b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    d.largest = std::max(d.largest, std::abs(x[i] - y[i]));
    d.count += x[i] != y[i];
  }
  return d;
}

}  // namespace

TEST_CASE("a packed convolution in floats equals the reference for every shape and ending",
          "[kernels][packed]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (!fast().can_pack_conv2d(dtype)) continue;
    for (const Case& k : kCases)
      for (const Ending ending : kEndings) {
        CAPTURE(k.name, name(dtype), ending.relu, ending.residual);
        const Problem p = floats(k, dtype, ending);
        // As for training: Winograd in f32 reaches 2e-5 of the rms.
        CHECK(test::far_from(run(fast(), p), run(reference_kernels(), p),
                             dtype == DType::f32 ? 1e-5 : 1e-2) == "");
      }
  }
}

TEST_CASE("sums of int8 products are exact", "[kernels][packed]") {
  if (!has_int8()) return test::skip("int8 needs a processor with VNNI");
  for (const Case& k : kCases)
    for (const DType in : {DType::u8, DType::i8}) {
      CAPTURE(k.name, name(in));
      Problem p = integers(k, in, DType::f32, {});
      ops::fill_(p.spec.scale, 1);
      ops::fill_(p.spec.bias, 0);
      const Tensor sums = run(fast(), p);
      REQUIRE(ops::sum_of_squares(sums) > 0);
      CHECK(test::differs(sums, run(reference_kernels(), p), 0) == "");
    }
}

TEST_CASE("all products at their largest do not saturate", "[kernels][packed]") {
  if (!has_int8()) return test::skip("int8 needs a processor with VNNI");
  // Pairs of 255 x 127 leave 16 bits: without VNNI oneDNN would cut them off.
  PackedConvSpec spec{.weight = ops::full({16, 64, 3, 3}, 127, DType::i8),
                      .bias = Tensor::zeros({16}),
                      .window = k3x3,
                      .in = DType::u8,
                      .out = DType::f32,
                      .scale = ops::full({16}, 1)};
  const auto conv = ops::pack_conv2d(spec);
  for (const std::int64_t size : {4, 8}) {
    const Tensor y = ops::packed_conv2d(*conv, ops::full({1, 64, size, size}, 255, DType::u8));
    CHECK(test::values(y)[static_cast<std::size_t>(size + 1)] == 255.0 * 127 * 64 * 9);
  }
}

TEST_CASE("int8 results are within one unit of the reference, whatever is added", "[kernels][packed]") {
  if (!has_int8()) return test::skip("int8 needs a processor with VNNI");
  for (const Case& k : kCases)
    for (const DType in : {DType::u8, DType::i8})
      for (const DType out : {DType::u8, DType::i8})
        for (const DType residual : {DType::u8, DType::i8})
          for (const Ending ending : kEndings) {
            if (residual == DType::i8 && !ending.residual) continue;
            CAPTURE(k.name, name(in), name(out), name(residual), ending.relu, ending.residual);
            const Problem p = integers(k, in, out, ending, residual);
            const Tensor got = run(fast(), p), expected = run(reference_kernels(), p);
            REQUIRE(got.dtype() == out);
            // Computed in f32 here and in double there: a value near a tie may round the other way. Few are.
            const Difference d = difference(got, expected);
            CHECK(d.largest <= 1);
            CHECK(d.count <= 1 + got.numel() / 500);
          }
}

TEST_CASE("one packed convolution serves any number of images, threads and callers", "[kernels][packed]") {
  const int before = num_threads();
  for (const DType in : {DType::f32, DType::bf16, DType::u8}) {
    if (!fast().can_pack_conv2d(in)) continue;
    const Case k{"", 9, 32, 32, 8, 8, k3x3};
    const Problem p = in == DType::u8 ? integers(k, in, DType::u8, {.relu = true, .residual = false})
                                      : floats(k, in, {.relu = true, .residual = false});
    const auto conv = ops::pack_conv2d(p.spec);
    const Tensor all = ops::packed_conv2d(*conv, p.x);
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      for (const std::int64_t images : {1, 2, 9, 0}) {
        CAPTURE(name(in), threads, images);
        const Tensor part = ops::packed_conv2d(*conv, p.x.slice(0, 0, images));
        REQUIRE(part.shape() == Shape{images, 32, 8, 8});
        // In f32 another number of images may mean another kernel.
        CHECK(test::differs(part, all.slice(0, 0, images), in == DType::f32 ? 1e-4 : 0.01, 1e-4) == "");
      }
    }
    set_num_threads(before);
    std::vector<Tensor> results(4);
    std::vector<std::thread> callers;
    for (Tensor& result : results)
      callers.emplace_back([&conv, &p, &result] {
        set_num_threads(1);
        for (const std::int64_t images : {1, 9, 4, 9})
          result = ops::packed_conv2d(*conv, p.x.slice(0, 0, images));
      });
    for (std::thread& caller : callers) caller.join();
    for (const Tensor& result : results) CHECK(test::differs(result, all, 1e-4, 1e-4) == "");
  }
}

TEST_CASE("the result lies where the residual was", "[kernels][packed]") {
  const Problem p = floats({"", 1, 8, 8, 6, 6, k3x3}, DType::f32, {.relu = false, .residual = true});
  const auto conv = ops::pack_conv2d(p.spec);
  const std::byte* memory = p.residual.raw();
  CHECK(ops::packed_conv2d(*conv, p.x, p.residual).raw() == memory);
}

TEST_CASE("quantize rounds to nearest even, saturates, and takes NaN for the lowest", "[kernels][quantize]") {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  const Tensor x =
      Tensor::from<float>({0, 0.25f, 0.75f, 1.25f, -0.75f, 1000, -1000, infinity, -infinity, nan}, {10});
  CHECK(test::values(ops::quantize(x, 0.5, DType::i8)) ==
        std::vector<double>{0, 0, 2, 2, -2, 127, -128, 127, -128, -128});
  CHECK(test::values(ops::quantize(x, 0.5, DType::u8)) ==
        std::vector<double>{0, 0, 2, 2, 0, 255, 0, 255, 0, 0});

  const Tensor image = ops::mul(test::random({2, 3, 5, 7}, 1), 50);
  for (const DType dtype : {DType::u8, DType::i8}) {
    const Tensor got = ops::quantize(image, 0.7, dtype, MemoryFormat::channels_last);
    CHECK(got.is_contiguous(MemoryFormat::channels_last));
    Tensor expected = Tensor::empty(image.shape(), dtype);
    reference_kernels().quantize(image, 0.7, expected);
    CHECK(test::differs(got, expected, 0) == "");
  }
}

TEST_CASE("packed convolution refuses what does not fit together", "[kernels][packed][error]") {
  const Case k{"", 1, 8, 16, 6, 6, k3x3};
  const Problem p = floats(k, DType::f32, {.relu = false, .residual = true});
  const auto with = [&](auto change) {
    PackedConvSpec spec = p.spec;
    change(spec);
    return ops::pack_conv2d(spec);
  };
  REQUIRE_THROWS_WITH(with([](PackedConvSpec& s) { s.in = DType::f64; }), ContainsSubstring("got f64"));
  REQUIRE_THROWS_WITH(with([](PackedConvSpec& s) { s.out = DType::u8; }),
                      ContainsSubstring("got input f32 and output u8"));
  REQUIRE_THROWS_WITH(with([](PackedConvSpec& s) { s.bias = Tensor(); }),
                      ContainsSubstring("bias must be f32 [16]"));
  REQUIRE_THROWS_WITH(with([](PackedConvSpec& s) { s.scale = s.bias; }),
                      ContainsSubstring("scale must be undefined"));
  REQUIRE_THROWS_WITH(with([](PackedConvSpec& s) { s.residual->dtype = DType::u8; }),
                      ContainsSubstring("got residual u8 and output f32"));
  REQUIRE_THROWS_WITH(with([](PackedConvSpec& s) { s.window.kernel[0] = 5; }),
                      ContainsSubstring("must be [O, C / groups, 5, 3]; got [16, 8, 3, 3]"));
  if (has_int8()) {
    const Problem q = integers(k, DType::u8, DType::u8, {});
    PackedConvSpec spec = q.spec;
    spec.scale = Tensor();
    REQUIRE_THROWS_WITH(ops::pack_conv2d(spec), ContainsSubstring("scale must be f32 [16]"));
    spec = q.spec, spec.weight = p.spec.weight;
    REQUIRE_THROWS_WITH(ops::pack_conv2d(spec), ContainsSubstring("weight must be i8 beside u8"));
    spec = integers(
               {"", 1, 16, 16, 6, 6, {.kernel = {3, 3}, .padding = {2, 2}, .dilation = {2, 2}, .groups = 2}},
               DType::u8, DType::u8, {})
               .spec;
    REQUIRE_THROWS_WITH(ops::pack_conv2d(spec), ContainsSubstring("groups or dilation, not both"));
  }

  const auto conv = ops::pack_conv2d(p.spec);
  REQUIRE_THROWS_WITH(ops::packed_conv2d(*conv, test::random({1, 9, 6, 6}, 1), p.residual),
                      ContainsSubstring("[1, 9, 6, 6]") && ContainsSubstring("[16, 8, 3, 3]"));
  REQUIRE_THROWS_WITH(ops::packed_conv2d(*conv, ops::cast(p.x, DType::bf16), p.residual),
                      ContainsSubstring("x must be f32 [N, C, H, W]; got bf16 [1, 8, 6, 6]"));
  REQUIRE_THROWS_WITH(ops::packed_conv2d(*conv, p.x),
                      ContainsSubstring("this one adds a residual; got none"));
  REQUIRE_THROWS_WITH(ops::packed_conv2d(*conv, p.x, p.x), ContainsSubstring("must be f32 [1, 16, 6, 6]"));
  REQUIRE_THROWS_WITH(ops::quantize(p.x, 0, DType::u8), ContainsSubstring("scale must be positive; got 0"));
  REQUIRE_THROWS_WITH(ops::quantize(p.x, 1, DType::i32), ContainsSubstring("to u8 or i8; got i32"));
}
