// SPDX-License-Identifier: MIT
// tests/kernels/device_kernels_test.cpp - what lets a device run ahead of the host (steps that it cancels by itself,
// the scale of an f16 loss, flags, images from bytes), and that its sums give the same bits every time.
#include <cmath>
#include <limits>

#include "data/augment.h"
#include "tests/support/device.h"
#include "tests/support/test.h"

using namespace brigade;
using Catch::Matchers::Contains;
using test::fast;

namespace {

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

constexpr SgdConstants kSgd{.lr = 0.1f,
                            .momentum = 0.9f,
                            .dampening = 0,
                            .weight_decay = 0.01f,
                            .nesterov = true,
                            .first_step = false};
constexpr AdamwConstants kAdamw{0.01f, 0.9f, 0.99f, 1e-6f, 0.1f, 0.271f, 0.029701f};

Tensor ints(const std::vector<std::int32_t>& list) {
  return test::from(list, {static_cast<std::int64_t>(list.size())});
}

// Parameter, momentum and second moment after one step of each optimizer.
struct Stepped {
  Tensor p, m, v, q, n;

  Stepped(const Tensor& grad, const StepControl& control) {
    const Shape shape = grad.shape();
    p = test::random(shape, 2), m = test::random(shape, 3), v = test::full(shape, 0.5);
    q = test::random(shape, 4), n = test::random(shape, 5);
    SgdConstants sgd = kSgd;
    AdamwConstants adamw = kAdamw;
    sgd.control = adamw.control = control;
    fast().adamw(adamw, grad, m, v, p);
    fast().sgd(sgd, grad, n, q);
  }
  std::string differs(const Stepped& other) const {
    std::string all;
    for (auto t : {&Stepped::p, &Stepped::m, &Stepped::v, &Stepped::q, &Stepped::n})
      all += test::differs_bitwise(this->*t, other.*t);
    return all;
  }
};

}  // namespace

TEST_CASE("a step whose flag is set on the device changes nothing", "[kernels][optimizer][control]") {
  const std::int64_t count = 1003;
  const Tensor grad = test::random({count}, 1), found = ints({1, 0});
  const Stepped skipped(grad, {.skip = found.data<std::int32_t>()});
  CHECK(test::differs_bitwise(skipped.p, test::random({count}, 2)) == "");
  CHECK(test::differs_bitwise(skipped.m, test::random({count}, 3)) == "");
  CHECK(test::differs_bitwise(skipped.v, test::full({count}, 0.5)) == "");
  CHECK(test::differs_bitwise(skipped.q, test::random({count}, 4)) == "");
  CHECK(test::differs_bitwise(skipped.n, test::random({count}, 5)) == "");
  const Stepped done(grad, {.skip = found.data<std::int32_t>() + 1}), plain(grad, {});
  CHECK(done.differs(plain) == "");
  CHECK(test::differs_bitwise(done.p, test::random({count}, 2)) != "");
}

TEST_CASE("an optimizer divides gradients by the scale of the loss", "[kernels][optimizer][control]") {
  const Tensor grad = test::random({1003}, 1), scaled = ops::mul(grad, 1024.0), scale = test::full({1}, 1024);
  const Stepped with(scaled, {.grad_scale = scale.data<float>()}), without(grad, {});
  CHECK(with.differs(without) == "");
}

TEST_CASE("constants of a step may lie in memory, and a gradient be clipped from there",
          "[kernels][optimizer][control]") {
  const Tensor grad = test::random({1003}, 1);
  const Tensor numbers = test::from<float>({0.125f, 0.5f, 0.25f}, {3}), factor = test::full({1}, 0.25);
  const float* const at = numbers.data<float>();
  const Stepped got(grad, {.clip = factor.data<float>(), .lr = at, .bias_corrections = at + 1});
  Stepped expected(grad, {});
  SgdConstants sgd = kSgd;
  AdamwConstants adamw = kAdamw;
  sgd.lr = adamw.lr = 0.125f, adamw.bias_correction1 = 0.5f, adamw.bias_correction2 = 0.25f;
  const Shape shape = grad.shape();
  expected.p = test::random(shape, 2), expected.m = test::random(shape, 3),
  expected.v = test::full(shape, 0.5);
  expected.q = test::random(shape, 4), expected.n = test::random(shape, 5);
  const Tensor clipped = ops::mul(grad, 0.25);
  fast().adamw(adamw, clipped, expected.m, expected.v, expected.p);
  fast().sgd(sgd, clipped, expected.n, expected.q);
  CHECK(got.differs(expected) == "");
}

TEST_CASE("a trust ratio in memory scales gradient and weight decay", "[kernels][optimizer][control]") {
  const Tensor grad = test::random({1003}, 1), ratio = test::full({1}, 0.5);
  SgdConstants plain = kSgd, trusting = kSgd;
  plain.weight_decay = 0.5f * kSgd.weight_decay;
  trusting.control.trust = ratio.data<float>();
  Tensor p = test::random({1003}, 2), q = test::random({1003}, 2);
  Tensor m = test::random({1003}, 3), n = test::random({1003}, 3);
  fast().sgd(plain, ops::mul(grad, 0.5), m, p);
  fast().sgd(trusting, grad, n, q);
  CHECK(test::differs_bitwise(p, q) == "");
  CHECK(test::differs_bitwise(m, n) == "");
}

TEST_CASE("the factor that clips is one at most, and one for a norm that is not finite",
          "[kernels][control]") {
  const auto factor_of = [](double squares) {
    Tensor factor = test::empty({1});
    ops::clip_factor(2, test::full({1}, squares, DType::f64), factor);
    return factor.item();
  };
  CHECK(factor_of(16) == static_cast<double>(static_cast<float>(2 / (4 + 1e-6))));
  CHECK(factor_of(1) == 1);
  CHECK(factor_of(INFINITY) == 1);
  CHECK(factor_of(NAN) == 1);
}

TEST_CASE("a trust ratio is that of the gradient as it will be used, and one without norms",
          "[kernels][control]") {
  const Tensor half = test::full({1}, 0.5);
  const auto ratio_of = [&](double p, double g, const float* clip) {
    Tensor ratio = test::empty({1});
    ops::trust_ratio({.trust = 0.01, .weight_decay = 0.1, .clip = clip}, test::full({1}, p, DType::f64),
                     test::full({1}, g, DType::f64), ratio);
    return ratio.item();
  };
  CHECK(ratio_of(9, 16, nullptr) == static_cast<double>(static_cast<float>(0.01 * 3 / (4 + 0.1 * 3))));
  CHECK(ratio_of(9, 16, half.data<float>()) ==
        static_cast<double>(static_cast<float>(0.01 * 3 / (2 + 0.1 * 3))));
  CHECK(ratio_of(0, 16, nullptr) == 1);
  CHECK(ratio_of(9, 0, nullptr) == 1);
}

TEST_CASE("one infinite or undefined value sets its tensor's flag and no other", "[kernels][control]") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloats)
    for (const double bad : {inf, -inf, std::nan("")})
      for (const std::int64_t at : {0, 7, 4099, 5000}) {
        INFO(str(name(dtype), " ", bad, " at ", at));
        Tensor x = test::random({5001}, 1, dtype), flags = ints({0, 0, 0});
        fast().flag_non_finite(x, flags, 1);
        CHECK(test::values(flags) == std::vector<double>{0, 0, 0});
        Tensor place = x.select(0, at);
        ops::fill_(place, bad);
        ops::flag_non_finite(x, flags, 1);
        CHECK(test::values(flags) == std::vector<double>{0, 1, 0});
        // What a view leaves out is none of its business.
        Tensor others = ints({0, 0});
        ops::flag_non_finite(x.slice(0, (at + 1) % 2, 5001, 2), others, 0);
        CHECK(test::values(others) == std::vector<double>{0, 0});
      }
  // The largest finite values are none of the two.
  Tensor flags = ints({0});
  ops::flag_non_finite(test::full({100}, 65504, DType::f16), flags, 0);
  ops::flag_non_finite(test::full({100}, 3.4e38), flags, 0);
  CHECK(test::values(flags) == std::vector<double>{0});
  CHECK_THROWS_WITH(ops::flag_non_finite(test::full({1}, 0), flags, 1),
                    Contains("[0, 1)") && Contains("got 1"));
}

TEST_CASE("the scale of a loss falls at an overflow and grows after an interval without one",
          "[kernels][control]") {
  const LossScaleConstants k{.growth = 2, .backoff = 0.25f, .interval = 3};
  Tensor scale = test::full({1}, 1024), good = ints({0});
  const auto step = [&](int found) {
    ops::update_loss_scale(k, ints({found}), scale, good);
    return std::vector<double>{scale.item(), good.item()};
  };
  CHECK(step(0) == std::vector<double>{1024, 1});
  CHECK(step(1) == std::vector<double>{256, 0});
  CHECK(step(0) == std::vector<double>{256, 1});
  CHECK(step(0) == std::vector<double>{256, 2});
  CHECK(step(0) == std::vector<double>{512, 0});
  // Never to infinity.
  ops::fill_(scale, 3e38);
  for (int i = 0; i < 3; ++i) step(0);
  CHECK(scale.item() == static_cast<double>(3e38f));
  CHECK_THROWS_WITH(ops::update_loss_scale({.interval = 0}, ints({0}), scale, good), Contains("interval"));
  CHECK_THROWS_WITH(ops::update_loss_scale(k, ints({0, 0}), scale, good),
                    Contains("found") && Contains("[2]"));
}

TEST_CASE("images become floats as the loader makes them, bit for bit", "[kernels][augment]") {
  using namespace data;
  const std::int64_t count = 37;
  const Normalization normalization{.mean = {0.5, 0.25, 0.4}, .std = {0.2, 0.3, 0.7}};
  for (const bool all : {false, true}) {
    const AugmentOptions options =
        all ? AugmentOptions{.crop_padding = 4, .flip = true, .cutout = 9} : AugmentOptions{};
    const Augmenter augmenter(options, normalization, 5);
    std::vector<std::uint8_t> bytes;
    for (std::int64_t i = 0; i < count * kImageBytes; ++i)
      bytes.push_back(static_cast<std::uint8_t>(i * i / 7 + i));
    std::vector<std::int32_t> choices;
    Tensor expected = Tensor::empty({count, kChannels, kSide, kSide});
    for (std::int64_t n = 0; n < count; ++n) {
      const Placement at = augmenter.placement(3, n);
      for (const std::int64_t choice : {at.dy, at.dx, std::int64_t{at.flip}, at.cutout_y, at.cutout_x})
        choices.push_back(static_cast<std::int32_t>(choice));
      augmenter.apply(bytes.data() + n * kImageBytes, 3, n, expected.data<float>() + n * kImageBytes,
                      {kPlane, kSide, 1});
    }
    std::vector<float> values;
    for (std::size_t c = 0; c < 3; ++c)
      for (int byte = 0; byte < 256; ++byte)
        values.push_back(static_cast<float>((byte / 255.0 - normalization.mean[c]) / normalization.std[c]));
    const Tensor images = test::from(bytes, expected.shape()), placed = test::from(choices, {count, 5});
    const Tensor table = test::from(values, {3, 256});
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      const Tensor got = ops::augment_images(images, placed, table, options.cutout, DType::f32, format);
      CHECK(got.is_contiguous(format));
      CHECK(test::differs_bitwise(got, expected) == "");
    }
    const Tensor half = ops::augment_images(images, placed, table, options.cutout, DType::bf16);
    CHECK(test::differs_bitwise(half, ops::cast(expected.to(test::test_device()), DType::bf16)) == "");
  }
  CHECK_THROWS_WITH(ops::augment_images(test::full({1, 3, 4, 4}, 0), {}, {}, 0), Contains("u8"));
}

TEST_CASE("sums give the same bits every time", "[kernels][reduce][repeat]") {
  const Tensor x = test::random({1000, 300}, 1), gamma = test::random({300}, 2),
               dy = test::random({1000, 300}, 3);
  const Tensor ids = ops::unary(Unary::abs, test::random({1000}, 3, DType::i64));
  struct Sums {
    Tensor all, columns, dgamma, dw;
    double squares = 0;
  };
  const auto sums = [&] {
    Sums s{ops::reduce(Reduction::sum, x), ops::reduce(Reduction::sum, x, {0}), test::empty({300}),
           test::empty({5, 300})};
    Tensor beta = test::empty({300});
    const ops::Normalized y = ops::layer_norm(x, gamma, gamma, 1e-5);
    ops::layer_norm_grad(dy, x, gamma, y.mean, y.invstd, s.dgamma, beta);
    ops::embedding_grad(dy, ids, s.dw);
    s.squares = ops::sum_of_squares(x);
    return s;
  };
  const Sums first = sums();
  for (int i = 0; i < 3; ++i) {
    const Sums again = sums();
    CHECK(test::differs_bitwise(first.all, again.all) == "");
    CHECK(test::differs_bitwise(first.columns, again.columns) == "");
    CHECK(test::differs_bitwise(first.dgamma, again.dgamma) == "");
    CHECK(test::differs_bitwise(first.dw, again.dw) == "");
    CHECK(first.squares == again.squares);
  }
}

TEST_CASE("kernels of floats refuse other dtypes in the same words on every device",
          "[kernels][control][error]") {
  const Tensor x = test::full({2, 2}, 1, DType::i32);
  Tensor y = ops::empty_like(x), flags = ints({0});
  CHECK_THROWS_WITH(fast().softmax(x, y), "softmax: needs a floating dtype; got i32");
  CHECK_THROWS_WITH(fast().softmax_grad(x, x, y), "softmax_grad: needs a floating dtype; got i32");
  CHECK_THROWS_WITH(fast().dropout(1, 2, 0.5, x, y), "dropout: needs a floating dtype; got i32");
  CHECK_THROWS_WITH(fast().random_uniform(1, 2, 0, 1, y), "random: needs a floating dtype; got i32");
  CHECK_THROWS_WITH(fast().flag_non_finite(x, flags, 0), "flag_non_finite: needs a floating dtype; got i32");
  CHECK_THROWS_WITH(fast().sgd(kSgd, x, y, y), "sgd: needs a floating dtype; got i32");
}
