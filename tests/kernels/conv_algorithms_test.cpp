// SPDX-License-Identifier: MIT
// tests/kernels/conv_algorithms_test.cpp - every convolution algorithm against the reference, on whatever shapes it
// says it takes; and the choice between them.
#include "kernels/cpu/conv_algorithms.h"

#include "core/parallel.h"
#include "kernels/cpu/amx/amx.h"
#include "tests/kernels/compare.h"
#include "tests/support/test.h"

using namespace brigade;
using cpu::ConvAlgorithm;
using cpu::ConvPass;
using cpu::ConvProblem;
using test::fast;

namespace {

struct Case {
  const char* name;
  std::int64_t images, in, out, height, width;
  Window window;
  bool bias = false;

  Shape x() const { return {images, in, height, width}; }
  Shape w() const { return {out, in / window.groups, window.kernel[0], window.kernel[1]}; }
  Shape y() const { return {images, out, window.out_size(0, height), window.out_size(1, width)}; }
};

constexpr Window k3x3{.kernel = {3, 3}, .padding = {1, 1}};
constexpr Window k3x3Stride2{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};

// Below, at and above the sizes of tiles and blocks: 16 and 32 images, 16 pixels a row, 32 channels.
const Case kCases[] = {
    {"3x3, whole blocks", 32, 32, 64, 2, 2, k3x3, true},
    {"3x3, 16 images, an odd number of pixels", 16, 32, 40, 3, 3, k3x3, true},
    {"1x1, more channels than fit the first-level cache", 17, 544, 40, 1, 3, {}, true},
    {"3x3, one image", 1, 32, 32, 3, 16, k3x3, true},
    {"3x3, 17 images, 33 to 31 channels", 17, 33, 31, 2, 2, k3x3, true},
    {"3x3, 35 images, rows of 16 pixels", 35, 8, 16, 1, 16, k3x3},
    {"3x3, rows of 32 pixels, an odd number of them", 1, 40, 16, 3, 32, k3x3},
    {"3x3 stride 2, rows of 16 pixels", 2, 16, 32, 3, 32, k3x3Stride2, true},
    {"3x3 stride 2", 20, 32, 40, 4, 4, k3x3Stride2},
    {"3x3 stride 2, odd size", 33, 16, 16, 5, 3, k3x3Stride2},
    {"1x1", 18, 48, 32, 1, 16, {}, true},
    {"1x1 stride 2", 16, 32, 64, 4, 4, {.stride = {2, 2}}},
    {"1x1 stride 3 by 2", 16, 32, 32, 7, 6, {.stride = {3, 2}}},
    {"5x3, dilated, uneven padding",
     2,
     16,
     32,
     9,
     16,
     {.kernel = {5, 3}, .padding = {1, 2}, .dilation = {2, 2}}},
    {"no padding", 2, 16, 16, 5, 18, {.kernel = {3, 3}}},
    {"more padding than kernel", 3, 16, 16, 2, 12, {.kernel = {3, 3}, .padding = {3, 3}}},
    {"stem", 17, 3, 32, 2, 16, k3x3},
    {"7x7 stem", 3, 3, 16, 5, 32, {.kernel = {7, 7}, .stride = {2, 2}, .padding = {3, 3}}},
    {"one pixel", 40, 64, 32, 1, 1, k3x3},
    {"one channel each way", 16, 1, 1, 4, 16, k3x3},
    {"groups", 3, 32, 32, 2, 16, {.kernel = {3, 3}, .padding = {1, 1}, .groups = 2}},
};

// Sums of at most 800 products of order 1 in f32; Winograd reaches 2e-5. bf16 results are rounded to 8 bits, and
// im2col rounds each of up to nine parts of dx before adding them.
double tolerance(DType dtype) { return dtype == DType::f32 ? 2e-5 : 2e-2; }

struct Tensors {
  Tensor x, dy, w, bias;

  Tensors(const Case& k, DType dtype, MemoryFormat format)
      : x(test::random(k.x(), 1, dtype, format)),
        dy(test::random(k.y(), 2, dtype, format)),
        w(test::weights(k.w(), 3, dtype)),
        bias(k.bias ? test::weights({k.out}, 4, dtype) : Tensor()) {}
};

// What `pass` computes; NaN shows what a kernel forgets to write.
template <class Functions>
Tensor run(const Functions& f, ConvPass pass, const Tensors& t, const Window& window) {
  Tensor result = ops::empty_like(pass == ConvPass::forward      ? t.dy
                                  : pass == ConvPass::grad_input ? t.x
                                                                 : t.w);
  ops::fill_(result, NAN);
  if (pass == ConvPass::forward) f.forward(t.x, t.w, t.bias, window, result);
  if (pass == ConvPass::grad_input) f.grad_input(t.dy, t.w, window, result);
  if (pass == ConvPass::grad_weight) f.grad_weight(t.dy, t.x, window, result);
  return result;
}

template <int beta>
void grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  reference_kernels().conv2d_grad_input(dy, w, window, beta, dx);
}

const ConvAlgorithm kReference{.name = "reference",
                               .fits = nullptr,
                               .forward = reference_kernels().conv2d,
                               .forward_with_moments = nullptr,
                               .grad_input = grad_input<0>,
                               .add_grad_input = grad_input<1>,
                               .grad_weight = reference_kernels().conv2d_grad_weight};
constexpr ConvPass kPasses[] = {ConvPass::forward, ConvPass::grad_input, ConvPass::grad_weight};
constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f64};

}  // namespace

TEST_CASE("every algorithm equals the reference on every shape it takes", "[kernels][conv][cpu]") {
  for (const Case& k : kCases)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensors plain(k, dtype, MemoryFormat::contiguous), last(k, dtype, MemoryFormat::channels_last);
      for (const ConvPass pass : kPasses) {
        const Tensor expected = run(kReference, pass, plain, k.window);
        int compared = 0;
        for (const Tensors* t : {&plain, &last})
          for (const ConvAlgorithm& algorithm : cpu::conv_algorithms()) {
            if (!algorithm.fits(ConvProblem(pass, t->x, t->dy, k.window))) continue;
            CAPTURE(k.name, name(dtype), name(pass), algorithm.name, t == &last);
            CHECK(test::far_from(run(algorithm, pass, *t, k.window), expected, tolerance(expected.dtype())) ==
                  "");
            ++compared;
          }
        CHECK(compared >= 2);  // im2col takes everything.
      }
    }
}

TEST_CASE("every algorithm adds to a gradient what it would write, f32 and f64 to the bit",
          "[kernels][conv][cpu]") {
  for (const Case& k : kCases)
    for (const DType dtype : kDTypes)
      for (const MemoryFormat format : test::kFormats) {
        const Tensors t(k, dtype, format);
        const Tensor before = test::random(k.x(), 5, dtype, format);
        Tensor exact = ops::clone(before);
        if (dtype == DType::bf16) kReference.add_grad_input(t.dy, t.w, k.window, exact);
        for (const ConvAlgorithm& algorithm : cpu::conv_algorithms()) {
          if (!algorithm.fits(ConvProblem(ConvPass::grad_input, t.x, t.dy, k.window))) continue;
          CAPTURE(k.name, name(dtype), algorithm.name, format == MemoryFormat::channels_last);
          const cpu::ConvAlgorithmScope scope(algorithm.name);
          Tensor sum = ops::clone(before, format);
          fast().conv2d_grad_input(t.dy, t.w, k.window, 1, sum);
          if (dtype == DType::bf16) {
            CHECK(test::far_from(sum, exact, tolerance(dtype)) == "");
            continue;
          }
          const Tensor share = run(algorithm, ConvPass::grad_input, t, k.window);
          CHECK(test::differs_bitwise(sum, ops::add(before, share)) == "");
        }
      }
}

TEST_CASE("tiles round a sum to bf16 once", "[kernels][conv][cpu][amx]") {
  if (!cpu::amx::available()) SUCCEED("skipped: this processor has no AMX");
  // 1 + 2^-8 alone would be rounded to 1, and 1 - 1 is nothing.
  const Case k{"", 16, 32, 32, 1, 16, {}};
  Tensors t(k, DType::bf16, MemoryFormat::channels_last);
  ops::fill_(t.dy, 1);
  ops::fill_(t.w, 0);
  for (std::int64_t c = 0; c < 32; ++c) {
    t.w.data<float>()[c] = 1;
    t.w.data<float>()[32 + c] = 0x1p-8F;
  }
  for (const ConvAlgorithm& algorithm : cpu::conv_algorithms()) {
    if (algorithm.add_grad_input == nullptr ||
        !algorithm.fits(ConvProblem(ConvPass::grad_input, t.x, t.dy, k.window)))
      continue;
    CAPTURE(algorithm.name);
    Tensor dx = ops::empty_like(t.x);
    ops::fill_(dx, -1);
    algorithm.add_grad_input(t.dy, t.w, k.window, dx);
    CHECK(test::differs(dx, ops::full(k.x(), 0x1p-8, DType::bf16), 0) == "");
  }
}

TEST_CASE("f32 on AMX tiles is as exact as f32 sums are", "[kernels][conv][cpu][amx]") {
  if (!cpu::amx::available()) SUCCEED("skipped: this processor has no AMX");
  const Case k{"", 16, 64, 32, 4, 16, k3x3};
  const Tensors t(k, DType::f32, MemoryFormat::channels_last);
  for (const ConvPass pass : kPasses) {
    const Tensor expected = run(kReference, pass, t, k.window);
    for (const ConvAlgorithm& algorithm : cpu::conv_algorithms()) {
      if (!algorithm.name.starts_with("amx") || !algorithm.fits(ConvProblem(pass, t.x, t.dy, k.window)))
        continue;
      CAPTURE(algorithm.name, name(pass));
      // The reference sums in double and rounds once; 576 to 1,024 f32 additions lose some 1e-6 of the rms.
      CHECK(test::far_from(run(algorithm, pass, t, k.window), expected, 4e-6) == "");
    }
  }
}

// An infinity times the parts of a weight that are zero is NaN, too.
TEST_CASE("what is not finite stays so in f32 on AMX tiles, and touches its own pixel only",
          "[kernels][conv][cpu][amx]") {
  if (!cpu::amx::available()) SUCCEED("skipped: this processor has no AMX");
  const Case k{"", 16, 32, 32, 1, 16, {}};
  Tensors t(k, DType::f32, MemoryFormat::channels_last);
  ops::fill_(t.x, 1);
  ops::fill_(t.w, 1);
  t.x.data<float>()[0] = INFINITY;
  t.x.data<float>()[32] = NAN;
  for (const ConvAlgorithm& algorithm : cpu::conv_algorithms()) {
    if (!algorithm.name.starts_with("amx") ||
        !algorithm.fits(ConvProblem(ConvPass::forward, t.x, t.dy, k.window)))
      continue;
    CAPTURE(algorithm.name);
    const Tensor y = run(algorithm, ConvPass::forward, t, k.window);
    CHECK(!std::isfinite(y.data<float>()[0]));
    CHECK(std::isnan(y.data<float>()[32]));
    CHECK(y.data<float>()[64] == 32);
  }
}

TEST_CASE("an algorithm gives the same bits for one thread and for three, weights on tiles at least",
          "[kernels][conv][cpu][amx]") {
  const int before = num_threads();
  for (const Case& k : kCases) {
    const Tensors t(k, DType::bf16, MemoryFormat::channels_last);
    for (const ConvAlgorithm& algorithm : cpu::conv_algorithms())
      for (const ConvPass pass : kPasses) {
        if (!algorithm.name.starts_with("amx") || !algorithm.fits(ConvProblem(pass, t.x, t.dy, k.window)))
          continue;
        CAPTURE(k.name, algorithm.name, name(pass));
        set_num_threads(1);
        const Tensor alone = run(algorithm, pass, t, k.window);
        set_num_threads(3);
        CHECK(test::differs_bitwise(run(algorithm, pass, t, k.window), alone) == "");
      }
  }
  set_num_threads(before);
}

TEST_CASE("moments that a convolution takes along are those of its result, for any number of threads",
          "[kernels][conv][cpu][amx]") {
  const int before = num_threads();
  for (const Case& k : kCases)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensors t(k, dtype, MemoryFormat::channels_last);
      for (const ConvAlgorithm& algorithm : cpu::conv_algorithms()) {
        if (algorithm.forward_with_moments == nullptr ||
            !algorithm.fits(ConvProblem(ConvPass::forward, t.x, t.dy, k.window)))
          continue;
        CAPTURE(k.name, name(dtype), algorithm.name);
        const Tensor plain = run(algorithm, ConvPass::forward, t, k.window);
        const ChannelMoments expected = ops::batch_norm_moments(plain);
        ChannelMoments first;
        for (const int threads : {1, 3}) {
          set_num_threads(threads);
          Tensor y = ops::empty_like(t.dy);
          ops::fill_(y, NAN);
          ChannelMoments got;
          algorithm.forward_with_moments(t.x, t.w, t.bias, k.window, y, got);
          CHECK(test::differs_bitwise(y, plain) == "");
          REQUIRE(got.mean.defined());
          // bf16 results are rounded after their sums are taken.
          const double tolerance = dtype == DType::bf16 ? 4e-3 : 1e-5;
          CHECK(test::differs(got.mean, expected.mean, 0, tolerance * test::rms(plain)) == "");
          CHECK(test::differs(got.squares, expected.squares, tolerance, 0) == "");
          if (!first.mean.defined()) first = got;
          CHECK(test::differs_bitwise(got.mean, first.mean) == "");
          CHECK(test::differs_bitwise(got.squares, first.squares) == "");
        }
        set_num_threads(before);
      }
    }
}

TEST_CASE("a convolution does not take moments along that would cancel", "[kernels][conv][cpu][amx]") {
  if (!cpu::amx::available()) SUCCEED("skipped: this processor has no AMX");
  const Case k{"", 16, 32, 32, 1, 16, {}, true};
  Tensors t(k, DType::f32, MemoryFormat::channels_last);
  t.bias.data<float>()[7] = 1000;
  for (const ConvAlgorithm& algorithm : cpu::conv_algorithms()) {
    if (algorithm.forward_with_moments == nullptr ||
        !algorithm.fits(ConvProblem(ConvPass::forward, t.x, t.dy, k.window)))
      continue;
    CAPTURE(algorithm.name);
    Tensor y = ops::empty_like(t.dy);
    ChannelMoments got;
    algorithm.forward_with_moments(t.x, t.w, t.bias, k.window, y, got);
    CHECK(!got.mean.defined());
    CHECK(test::differs_bitwise(y, run(algorithm, ConvPass::forward, t, k.window)) == "");
  }
}

TEST_CASE("the choice takes only what fits, for every shape, dtype and format", "[kernels][conv][cpu]") {
  for (const Case& k : kCases)
    for (const DType dtype : kDTypes)
      for (const MemoryFormat format : test::kFormats)
        for (const ConvPass pass : kPasses) {
          const Tensor x = Tensor::empty(k.x(), dtype, {}, format),
                       y = Tensor::empty(k.y(), dtype, {}, format);
          const ConvProblem problem(pass, x, y, k.window);
          CAPTURE(k.name, name(dtype), name(pass), cpu::choose_conv(problem).name);
          CHECK(cpu::choose_conv(problem).fits(problem));
          ConvProblem more = problem;
          more.adds = pass == ConvPass::grad_input;
          more.takes_moments = pass == ConvPass::forward;
          CHECK(cpu::choose_conv(more).fits(more));
        }
}

TEST_CASE(
    "where a gradient is added to or moments are taken, the choice prefers tiles that do it by themselves",
    "[kernels][conv][cpu][amx]") {
  if (!cpu::amx::available()) SUCCEED("skipped: this processor has no AMX");
  const Tensor x = Tensor::empty({64, 64, 32, 32}, DType::bf16, {}, MemoryFormat::channels_last);
  ConvProblem problem(ConvPass::grad_input, x, x, k3x3);
  problem.adds = true;
  if (cpu::amx::available()) CHECK(cpu::choose_conv(problem).name == "amx_pixels");
  ConvProblem forward(ConvPass::forward, x, x, k3x3);
  forward.takes_moments = true;
  if (cpu::amx::available()) CHECK(cpu::choose_conv(forward).name == "amx_pixels");
}

TEST_CASE("measured choices name algorithms that fit their shapes", "[kernels][conv][cpu]") {
  for (const cpu::ConvChoice& c : cpu::measured_conv_choices()) {
    CAPTURE(name(c.pass), name(c.dtype), c.in_channels, c.out_channels, c.in_size, c.kernel, c.stride,
            c.images);
    const Window window{.kernel = {c.kernel, c.kernel},
                        .stride = {c.stride, c.stride},
                        .padding = {c.kernel / 2, c.kernel / 2}};
    const std::int64_t out = window.out_size(0, c.in_size);
    const MemoryFormat format = MemoryFormat::channels_last;
    const ConvProblem problem(
        c.pass, Tensor::empty({c.images, c.in_channels, c.in_size, c.in_size}, c.dtype, {}, format),
        Tensor::empty({c.images, c.out_channels, out, out}, c.dtype, {}, format), window);
    const cpu::ConvAlgorithmScope scope(c.algorithm);  // Throws for an unknown name.
    if (cpu::amx::available()) CHECK(cpu::choose_conv(problem).name == c.algorithm);
  }
}

TEST_CASE("a scope forces an algorithm where it fits, and only there", "[kernels][conv][cpu]") {
  const auto chosen = [](DType dtype) {
    const Tensor x = Tensor::empty({2, 16, 8, 8}, dtype);
    return cpu::choose_conv(ConvProblem(ConvPass::forward, x, x, k3x3)).name;
  };
  REQUIRE(chosen(DType::f32) == "onednn");
  {
    const cpu::ConvAlgorithmScope scope("im2col");
    CHECK(chosen(DType::f32) == "im2col");
    const cpu::ConvAlgorithmScope inner("onednn_blocked");
    CHECK(chosen(DType::f32) == "onednn_blocked");
    CHECK(chosen(DType::f64) == "im2col");
  }
  CHECK(chosen(DType::f32) == "onednn");
  CHECK_THROWS_WITH(cpu::ConvAlgorithmScope("fft"),
                    Catch::Matchers::Contains("no algorithm is called \"fft\""));
}
