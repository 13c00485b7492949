// SPDX-License-Identifier: MIT
// tests/kernels/norm_test.cpp - batch norm and layer norm against the reference, and where naive sums break.
#include "core/parallel.h"
#include "tests/kernels/compare.h"
#include "tests/support/test.h"

using namespace brigade;
using test::fast;

namespace {

constexpr double kEpsilon = 1e-5, kMomentum = 0.1;

// Statistics are f32 sums in blocks and double across them; 16-bit outputs are rounded once.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-11;
    case DType::f32:
      return 1e-5;
    default:
      return 1e-2;
  }
}

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f64, DType::f16};

// What follows batch norm in the same pass.
enum class Ending { none, relu, add, add_relu };
constexpr Ending kEndings[] = {Ending::none, Ending::relu, Ending::add, Ending::add_relu};

struct BatchNorm {
  Tensor running_mean, running_var, y, eval, mean, invstd, shift, dz, dx, dgamma, dbeta;
  Tensor own_mean, own_squares;  // Of x as a share of a batch, and dx if that has three times as many values.
  Tensor dx_of_share;

  BatchNorm(const KernelTable& table, const Tensor& x, Ending ending = Ending::none) {
    const std::int64_t channels = x.size(1);
    const DType parameters = test::parameter_dtype(x.dtype());
    const bool relu = ending == Ending::relu || ending == Ending::add_relu;
    const bool add = ending == Ending::add || ending == Ending::add_relu;
    const BatchNormTail tail{
        relu, add ? ops::clone(test::random(x.shape(), 14, x.dtype()), x.memory_format()) : Tensor()};
    const Tensor gamma = test::random({channels}, 11, parameters),
                 beta = test::random({channels}, 12, parameters);
    const Tensor dy = ops::clone(test::random(x.shape(), 13, x.dtype()), x.memory_format());
    running_mean = test::full({channels}, 0.5, parameters);
    running_var = test::full({channels}, 2, parameters);
    y = ops::empty_like(x), eval = ops::empty_like(x), dx = ops::empty_like(x);
    for (Tensor* t : {&mean, &invstd, &shift, &dgamma, &dbeta}) *t = test::empty({channels}, parameters);
    table.batch_norm_train(x, gamma, beta, kMomentum, kEpsilon, tail, {}, running_mean, running_var, y, mean,
                           invstd, shift);
    table.batch_norm_eval(x, gamma, beta, running_mean, running_var, kEpsilon, tail, eval);
    const auto count = static_cast<double>(x.numel() / channels);
    BatchNormForward forward{x, gamma, mean, invstd};
    if (relu && add) forward.y = y, dz = ops::empty_like(x);
    if (relu && !add) forward.shift = shift;
    table.batch_norm_grad_sums(dy, forward, dz, dgamma, dbeta);
    const Tensor by_bn = relu && add ? dz : dy;
    table.batch_norm_grad_input(by_bn, forward, dgamma, dbeta, count, dx);
    dx_of_share = ops::empty_like(x);
    table.batch_norm_grad_input(by_bn, forward, dgamma, dbeta, 3 * count, dx_of_share);
    for (Tensor* t : {&own_mean, &own_squares}) *t = test::empty({channels}, DType::f64);
    table.batch_norm_moments(x, own_mean, own_squares);
  }
};

void compare(const BatchNorm& got, const BatchNorm& expected, double activations, double statistics) {
  CHECK(test::far_from(got.y, expected.y, activations) == "");
  CHECK(test::far_from(got.eval, expected.eval, activations) == "");
  if (expected.dz.defined()) CHECK(test::far_from(got.dz, expected.dz, activations) == "");
  CHECK(test::far_from(got.dx, expected.dx, activations) == "");
  CHECK(test::far_from(got.dx_of_share, expected.dx_of_share, activations) == "");
  CHECK(test::far_from(got.own_mean, expected.own_mean, statistics) == "");
  CHECK(test::far_from(got.own_squares, expected.own_squares, statistics) == "");
  CHECK(test::far_from(got.mean, expected.mean, statistics) == "");
  CHECK(test::far_from(got.invstd, expected.invstd, statistics) == "");
  CHECK(test::far_from(got.running_mean, expected.running_mean, statistics) == "");
  CHECK(test::far_from(got.running_var, expected.running_var, statistics) == "");
  CHECK(test::far_from(got.dgamma, expected.dgamma, statistics) == "");
  CHECK(test::far_from(got.dbeta, expected.dbeta, statistics) == "");
}

}  // namespace

TEST_CASE("batch norm and its gradients equal the reference for every shape, dtype and layout",
          "[kernels][norm]") {
  for (const DType dtype : kFloats)
    for (const Shape& shape :
         {Shape{2, 1, 3, 3}, Shape{1, 3, 5, 7}, Shape{4, 16, 8, 8}, Shape{32, 10}, Shape{6, 5}})
      for (const MemoryFormat format : test::kFormats) {
        if (shape.size() == 2 && format == MemoryFormat::channels_last) continue;
        const Tensor x = test::random(shape, 1, dtype, format);
        for (const Ending ending : kEndings) {
          CAPTURE(name(dtype), shape[0], shape[1], format == MemoryFormat::channels_last, ending);
          compare({fast(), x, ending}, {test::reference(), x, ending}, tolerance(dtype),
                  tolerance(test::parameter_dtype(dtype)));
        }
      }
}

// The reference is slow, and so is an emulated device: one shape with whole and broken pieces of channels, and one with
// many values a channel.
TEST_CASE("batch norm and its gradients equal the reference for large batches", "[kernels][norm][large]") {
  for (const DType dtype : kFloats) {
    if (test::test_device() != Device{} && dtype != DType::f32 && dtype != DType::bf16) continue;
    for (const MemoryFormat format : test::kFormats) {
      CAPTURE(name(dtype), format == MemoryFormat::channels_last);
      const double activations = tolerance(dtype), statistics = tolerance(test::parameter_dtype(dtype));
      const Tensor wide = test::random({2, 65, 20, 17}, 1, dtype, format);
      for (const Ending ending : kEndings)
        compare({fast(), wide, ending}, {test::reference(), wide, ending}, activations, statistics);
      const Tensor high = test::random({3, 8, 70, 70}, 1, dtype, format);
      compare({fast(), high}, {test::reference(), high}, activations, statistics);
    }
  }
}

TEST_CASE("batch norm of a large mean and a tiny deviation does not cancel", "[kernels][norm]") {
  for (const MemoryFormat format : test::kFormats) {
    // Around 1000 neighbouring floats are 6e-5 apart: a deviation of 0.01 keeps 160 of them. E[x²] - E[x]² in
    // f32 would be off by 0.06, which is 600 times the variance.
    Tensor x = test::random({8, 16, 16, 16}, 1, DType::f32, format);
    ops::mul_(x, 0.01);
    ops::binary_(Binary::add, x, 1e3);
    const BatchNorm got(fast(), x), expected(test::reference(), x);
    CHECK(test::far_from(got.y, expected.y, 1e-5) == "");
    CHECK(test::far_from(got.invstd, expected.invstd, 1e-5) == "");
    CHECK(test::far_from(got.mean, expected.mean, 1e-7) == "");
    // Backward is given the mean rounded to f32, 3e-5 or 0.003 deviations off, as the reference is.
    CHECK(test::far_from(got.dx, expected.dx, 1e-4) == "");
  }
}

TEST_CASE("the moments of no values are zero", "[kernels][norm]") {
  for (const MemoryFormat format : test::kFormats)
    for (const KernelTable* table : {&fast(), &test::reference()}) {
      Tensor mean = test::full({3}, 7, DType::f64), squares = test::full({3}, 7, DType::f64);
      table->batch_norm_moments(test::random({0, 3, 2, 2}, 1, DType::f32, format), mean, squares);
      CHECK(test::values(mean) == std::vector<double>{0, 0, 0});
      CHECK(test::values(squares) == std::vector<double>{0, 0, 0});
    }
}

TEST_CASE("batch norm survives an outlier in the element that each block is shifted by", "[kernels][norm]") {
  for (const MemoryFormat format : test::kFormats) {
    Tensor x = test::random({4, 3, 16, 16}, 1, DType::f32, format);
    Tensor corner = x.slice(0, 0, 1).slice(2, 0, 1).slice(3, 0, 1);
    ops::fill_(corner, 1e3);
    // One value in 1024 is 1000 deviations away, and 64 differences from it are summed in f32: 6e-5 at worst.
    compare({fast(), x}, {test::reference(), x}, 1e-4, 1e-4);
  }
}

// PyTorch's convention on every device: normalise with the biased variance 1.25, track the unbiased 5/3.
TEST_CASE("running variance is unbiased, the normalisation is not", "[kernels][norm][A12]") {
  const Tensor x = test::from<float>({1, 2, 3, 4}, {4, 1, 1, 1});
  const Tensor gamma = test::full({1}, 1), beta = test::full({1}, 0);
  Tensor running_mean = test::full({1}, 0), running_var = test::full({1}, 1), y = ops::empty_like(x);
  Tensor mean = test::empty({1}), invstd = test::empty({1});
  Tensor shift = test::empty({1});
  fast().batch_norm_train(x, gamma, beta, 0.1, 0, {}, {}, running_mean, running_var, y, mean, invstd, shift);
  REQUIRE_THAT(running_var.item(), Catch::Matchers::WithinAbs(1.0666667, 1e-6));
  REQUIRE_THAT(running_mean.item(), Catch::Matchers::WithinAbs(0.25, 1e-7));
  REQUIRE_THAT(invstd.item(), Catch::Matchers::WithinAbs(1 / std::sqrt(1.25), 1e-6));
  REQUIRE_THAT(test::values(y)[3], Catch::Matchers::WithinAbs(1.5 / std::sqrt(1.25), 1e-6));
}

TEST_CASE("batch norm without running statistics normalises just the same", "[kernels][norm]") {
  const Tensor x = test::random({4, 8, 3, 3}, 1), gamma = test::full({8}, 1), beta = test::full({8}, 0);
  Tensor none_mean, none_var, y = ops::empty_like(x), mean = test::empty({8}), invstd = test::empty({8});
  Tensor shift = test::empty({8});
  fast().batch_norm_train(x, gamma, beta, kMomentum, kEpsilon, {}, {}, none_mean, none_var, y, mean, invstd,
                          shift);
  Tensor ey = ops::empty_like(x), emean = test::empty({8}), einvstd = test::empty({8});
  test::reference().batch_norm_train(x, gamma, beta, kMomentum, kEpsilon, {}, {}, none_mean, none_var, ey,
                                     emean, einvstd, shift);
  REQUIRE(test::far_from(y, ey, 1e-5) == "");
}

TEST_CASE("batch norm normalises with the moments it is given, and they are counted as the batch's",
          "[kernels][norm]") {
  const Tensor x = test::random({4, 8, 3, 3}, 1), gamma = test::full({8}, 1), beta = test::full({8}, 0);
  Tensor mean = test::full({8}, 0), var = test::full({8}, 1), none;
  const ops::BatchNormalized plain = ops::batch_norm_train(x, gamma, beta, 0.1, 1e-5, mean, var);
  const ChannelMoments own = ops::batch_norm_moments(x);
  Tensor mean_of_known = test::full({8}, 0), var_of_known = test::full({8}, 1);
  const ops::BatchNormalized known =
      ops::batch_norm_train(x, gamma, beta, 0.1, 1e-5, mean_of_known, var_of_known, {}, own);
  CHECK(test::differs(known.out, plain.out, 1e-6, 1e-6) == "");
  CHECK(test::differs(mean_of_known, mean, 1e-6, 1e-7) == "");
  CHECK(test::differs(var_of_known, var, 1e-6) == "");
  // Somebody else's.
  const ChannelMoments others{ops::add(own.mean, test::full({8}, 1, DType::f64)), own.squares};
  const ops::BatchNormalized moved = ops::batch_norm_train(x, gamma, beta, 0.1, 1e-5, none, none, {}, others);
  CHECK(test::differs(ops::add(moved.out, known.invstd.view({1, 8, 1, 1})), known.out, 1e-5, 1e-5) == "");
  CHECK_THROWS_WITH(ops::batch_norm_train(x, gamma, beta, 0.1, 1e-5, none, none, {}, {own.mean, {}}),
                    Catch::Matchers::Contains("moments must be two contiguous f64 [8]"));
}

TEST_CASE("norms give the same bits for any number of threads", "[kernels][norm]") {
  const int before = num_threads();
  for (const MemoryFormat format : test::kFormats) {
    const Tensor x = test::random({8, 24, 20, 20}, 1, DType::f32, format);
    set_num_threads(1);
    const BatchNorm one(fast(), x, Ending::add_relu);
    for (const int threads : {2, 3}) {
      set_num_threads(threads);
      const BatchNorm many(fast(), x, Ending::add_relu);
      CHECK(test::differs_bitwise(one.y, many.y) == "");
      CHECK(test::differs_bitwise(one.dx, many.dx) == "");
      CHECK(test::differs_bitwise(one.dgamma, many.dgamma) == "");
      CHECK(test::differs_bitwise(one.running_var, many.running_var) == "");
    }
    set_num_threads(before);
  }
}

TEST_CASE("the gradient of batch norm may be written over the gradient that came in", "[kernels][norm]") {
  for (const MemoryFormat format : test::kFormats)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = test::random({2, 70, 9, 7}, 1, dtype, format),
                   y = test::random(x.shape(), 2, dtype, format);
      const Tensor dy = test::random(x.shape(), 3, dtype, format);
      const Tensor gamma = test::random({70}, 4), mean = test::random({70}, 5),
                   invstd = test::full({70}, 0.7);
      const BatchNormForward forward{x, gamma, mean, invstd, {}, y};
      Tensor dz[2] = {ops::empty_like(x), ops::clone(dy, format)}, dx[2] = {ops::empty_like(x), dz[1]};
      Tensor dgamma[2], dbeta[2];
      for (const int i : {0, 1}) {
        dgamma[i] = test::empty({70}), dbeta[i] = test::empty({70});
        fast().batch_norm_grad_sums(i == 0 ? dy : dz[1], forward, dz[i], dgamma[i], dbeta[i]);
      }
      CHECK(test::differs_bitwise(dz[0], dz[1]) == "");
      CHECK(test::differs_bitwise(dgamma[0], dgamma[1]) == "");
      CHECK(test::differs_bitwise(dbeta[0], dbeta[1]) == "");
      for (const int i : {0, 1})
        fast().batch_norm_grad_input(dz[i], forward, dgamma[0], dbeta[0], 126, dx[i]);
      CHECK(test::differs_bitwise(dx[0], dx[1]) == "");
    }
}

TEST_CASE("layer norm and its gradients equal the reference", "[kernels][norm]") {
  for (const DType dtype : kFloats)
    for (const Shape& shape :
         {Shape{1, 1, 7}, Shape{3, 5, 64}, Shape{700, 33}, Shape{4, 768}, Shape{7, 1501}, Shape{5, 2048}})
      for (const double offset : {0.0, 100.0}) {
        CAPTURE(name(dtype), shape.size(), shape.back(), offset);
        const DType parameters = test::parameter_dtype(dtype);
        Tensor x = test::random(shape, 1, dtype);
        ops::binary_(Binary::add, x, offset);
        const Tensor dy = test::random(shape, 2, dtype);
        const Tensor gamma = test::random({shape.back()}, 3, parameters),
                     beta = test::random({shape.back()}, 4, parameters);
        const Shape rows{x.numel() / shape.back()};
        Tensor y[2], dx[2], mean[2], invstd[2], dgamma[2], dbeta[2];
        for (const int i : {0, 1}) {
          const KernelTable& table = i == 0 ? fast() : test::reference();
          y[i] = ops::empty_like(x), dx[i] = ops::empty_like(x);
          mean[i] = test::empty(rows, parameters), invstd[i] = test::empty(rows, parameters);
          dgamma[i] = test::empty({shape.back()}, parameters), dbeta[i] = ops::empty_like(dgamma[i]);
          table.layer_norm(x, gamma, beta, kEpsilon, y[i], mean[i], invstd[i]);
          table.layer_norm_grad(dy, x, gamma, mean[i], invstd[i], dx[i], dgamma[i], dbeta[i]);
        }
        // The saved mean of an offset row is rounded to 4e-6 of a deviation,
        // which the gradient of gamma sees.
        const double statistics = dtype == DType::f64 ? 1e-11 : 5e-5;
        CHECK(test::far_from(y[0], y[1], tolerance(dtype)) == "");
        CHECK(test::far_from(dx[0], dx[1], std::max(tolerance(dtype), statistics)) == "");
        CHECK(test::far_from(mean[0], mean[1], statistics) == "");
        CHECK(test::far_from(invstd[0], invstd[1], statistics) == "");
        CHECK(test::far_from(dgamma[0], dgamma[1], statistics) == "");
        CHECK(test::far_from(dbeta[0], dbeta[1], statistics) == "");
      }
}
