// SPDX-License-Identifier: MIT
// tests/models/inference_test.cpp - residual networks folded for inference, in f32, bf16 and int8, against the model in
// evaluation mode.
#include <cmath>

#include "autograd/engine.h"
#include "autograd/no_grad.h"
#include "autograd/ops/loss.h"
#include "core/parallel.h"
#include "kernels/ops.h"
#include "models/catalog.h"
#include "models/fold.h"
#include "models/resnet.h"
#include "nn/inference_net.h"
#include "nn/optim/sgd.h"
#include "tests/support/skip.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using models::ResNet;
using models::ResNetOptions;
using models::Stem;
using nn::InferenceNet;

namespace {

ResNetOptions small(Stem stem) { return {.blocks = {2, 1, 1, 1}, .classes = 5, .stem = stem, .width = 16}; }

bool has_int8() { return kernels({}).can_pack_conv2d(DType::u8); }

// Images [count, 3, 16, 16] of five classes, each its own picture under noise.
struct Images {
  Tensor images, labels;
};
Images images(std::int64_t count, std::uint64_t seed) {
  const Tensor pictures = test::random({5, 3, 16, 16}, 77), noise = test::random({count, 3, 16, 16}, seed);
  std::vector<Tensor> rows;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    rows.push_back(pictures.select(0, i % 5));
    labels.push_back(i % 5);
  }
  return {ops::add(ops::stack(rows, 0), ops::mul(noise, 1.5)), Tensor::from(labels, {count})};
}

// Small work gains nothing from threads, and loses much where cores are shared.
struct OneThread {
  int before = num_threads();
  OneThread() { set_num_threads(1); }
  ~OneThread() { set_num_threads(before); }
};

// A few steps, so that no statistic and no parameter of a batch norm is what it was at the start.
void train(ResNet& model, int steps) {
  optim::FlatParameters parameters(model.named_parameters());
  optim::Sgd sgd(parameters, 0.05, {.momentum = 0.9});
  for (int i = 0; i < steps; ++i) {
    const Images batch = images(40, static_cast<std::uint64_t>(i));
    parameters.zero_grad();
    backward(cross_entropy(model(batch.images), batch.labels));
    sgd.step();
  }
  model.eval();
}

Tensor evaluate(ResNet& model, const Tensor& x) {
  const NoGrad no_grad;
  return model(x).value();
}

double relative_error(const Tensor& got, const Tensor& expected) {
  return std::sqrt(ops::sum_of_squares(ops::sub(got, expected)) / ops::sum_of_squares(expected));
}

int agreeing(const Tensor& a, const Tensor& b) {
  const auto x = test::values(ops::argmax(a, 1)), y = test::values(ops::argmax(b, 1));
  int count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += x[i] == y[i];
  return count;
}

}  // namespace

TEST_CASE("a folded network computes in f32 what the model does in evaluation", "[models][inference]") {
  const OneThread one;
  for (const Stem stem : {Stem::cifar, Stem::imagenet}) {
    default_generator() = {.seed = 3};
    ResNet model(small(stem));
    train(model, 4);
    const Tensor x = test::random({3, 3, 40, 36}, 9), expected = evaluate(model, x);
    const InferenceNet net(models::fold(model));
    // Ten convolutions, folded weights rounded once more.
    CHECK(relative_error(net(x), expected) < 1e-5);
    CHECK(relative_error(net(ops::contiguous(x, MemoryFormat::channels_last)), expected) < 1e-5);
    for (const std::int64_t count : {1, 2})
      CHECK(relative_error(net(x.slice(0, 0, count)), expected.slice(0, 0, count)) < 1e-5);
    CHECK(net(x.slice(0, 0, 0)).shape() == Shape{0, 5});
  }
}

TEST_CASE("folding takes the statistics, scales and shifts of this moment", "[models][inference]") {
  const OneThread one;
  default_generator() = {.seed = 3};
  ResNet model(small(Stem::cifar));
  train(model, 1);
  const Tensor x = test::random({2, 3, 16, 16}, 9), before = evaluate(model, x);
  const InferenceNet net(models::fold(model));
  model.train();
  train(model, 2);
  REQUIRE(relative_error(evaluate(model, x), before) > 0.01);
  CHECK(relative_error(net(x), before) < 1e-5);
  CHECK(relative_error(InferenceNet(models::fold(model))(x), evaluate(model, x)) < 1e-5);
}

TEST_CASE("bf16 and int8 stay close to f32 on a trained network and decide alike",
          "[models][inference][int8]") {
  const OneThread one;
  for (const Stem stem : {Stem::cifar, Stem::imagenet}) {
    CAPTURE(stem == Stem::cifar);
    default_generator() = {.seed = 3};
    ResNet model(small(stem));
    train(model, 30);
    const Images held_out = images(200, 1000);
    const Tensor expected = evaluate(model, held_out.images);
    // Measured: logits off by 0.4 % in bf16 and 1.8 % in int8, 197 of 200 decisions equal; the rest is room.
    // It has learned something: else agreement would be worth nothing.
    const auto labels = test::values(held_out.labels), decided = test::values(ops::argmax(expected, 1));
    int right = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) right += labels[i] == decided[i];
    REQUIRE(right > 120);

    const nn::FoldedNet folded = models::fold(model);
    if (kernels({}).can_pack_conv2d(DType::bf16)) {
      const Tensor half = InferenceNet(folded, DType::bf16)(held_out.images);
      UNSCOPED_INFO("bf16 " << relative_error(half, expected) << ", agree " << agreeing(half, expected));
      CHECK(relative_error(half, expected) < 0.02);
      CHECK(agreeing(half, expected) >= 190);
    }
    if (!has_int8()) return test::skip("int8 needs a processor with VNNI");
    const Tensor batches[] = {images(40, 500).images, images(40, 501).images};
    const Tensor bytes = InferenceNet(folded, nn::calibrate(folded, batches))(held_out.images);
    UNSCOPED_INFO("int8 " << relative_error(bytes, expected) << ", agree " << agreeing(bytes, expected));
    CHECK(relative_error(bytes, expected) < 0.06);
    CHECK(agreeing(bytes, expected) >= 190);
  }
}

TEST_CASE("int8 takes any number of images, also where an image is one pixel in the end",
          "[models][inference][int8]") {
  if (!has_int8()) return test::skip("int8 needs a processor with VNNI");
  const OneThread one;
  default_generator() = {.seed = 3};
  ResNet model(small(Stem::cifar));
  train(model, 2);
  const nn::FoldedNet folded = models::fold(model);
  for (const std::int64_t size : {8, 20}) {
    const Tensor x = test::random({5, 3, size, size}, 9), expected = evaluate(model, x);
    const InferenceNet net(folded, nn::calibrate(folded, {&x, 1}));
    const Tensor all = net(x);
    CHECK(relative_error(all, expected) < 0.05);
    for (std::int64_t i = 0; i < 5; ++i) {
      CAPTURE(size, i);
      // Sums of integers do not depend on how many images there are; what follows may round a tie the other way.
      CHECK(relative_error(net(x.slice(0, i, i + 1)), all.slice(0, i, i + 1)) < 0.01);
    }
  }
}

TEST_CASE("calibration takes the largest percentile over batches, of every value",
          "[models][inference][int8]") {
  const OneThread one;
  default_generator() = {.seed = 3};
  ResNet model(small(Stem::cifar));
  train(model, 2);
  const nn::FoldedNet folded = models::fold(model);
  const Tensor ramp =
      ops::mul(ops::reshape(ops::cast(ops::arange(3 * 16 * 16), DType::f32), {1, 3, 16, 16}), -1.0 / 768);
  const Tensor batches[] = {ramp, ops::mul(ramp, 2), ramp};
  const nn::ValueLimits most = nn::calibrate(folded, batches);
  CHECK(static_cast<int>(most.size()) == folded.values());
  // Magnitudes k / 768 below 768, doubled in one batch: the largest, and that of rank ceil(0.9 * 768) = 692.
  CHECK_THAT(most.at(0), Catch::Matchers::WithinRel(2 * 767.0 / 768, 1e-6));
  const nn::ValueLimits fewer = nn::calibrate(folded, batches, {.percentile = 90});
  CHECK_THAT(fewer.at(0), Catch::Matchers::WithinRel(2 * 691.0 / 768, 1e-6));
  for (std::size_t v = 1; v < most.size(); ++v) CHECK((fewer[v] > 0 && fewer[v] < most[v]));
}

TEST_CASE("a residual that is read again, or belongs to the caller, is left alone", "[models][inference]") {
  const OneThread one;
  default_generator() = {.seed = 3};
  nn::Conv2d keep(3, 3, 3, {.padding = 1});
  nn::BatchNorm2d norm(3);
  const nn::Linear linear(3, 2);
  // a = conv(x) + x, b = conv(a) + x, c = conv(b) + a
  nn::FoldedNet net;
  const int first = net.add(0, keep, norm);
  const int a = net.add(first, keep, norm, {.residual = 0});
  const int b = net.add(a, keep, norm, {.residual = 0});
  net.add(b, keep, norm, {.residual = a});
  net.finish(linear);
  const Tensor x = test::random({2, 3, 6, 6}, 1, DType::f32, MemoryFormat::channels_last),
               copy = ops::clone(x);
  const InferenceNet inference(net);
  const Tensor got = inference(x);
  CHECK(test::differs(x, copy, 0) == "");

  keep.eval(), norm.eval();
  const NoGrad no_grad;
  const auto conv = [&](const Tensor& t) { return norm(keep(t)).value(); };
  const Tensor va = ops::add(conv(conv(x)), x), vb = ops::add(conv(va), x), vc = ops::add(conv(vb), va);
  const Tensor pooled = ops::adaptive_avg_pool2d(vc, 1, 1).view({2, 3});
  CHECK(test::differs(got, ops::linear(pooled, linear.weight.value(), linear.bias.value()), 1e-5, 1e-6) ==
        "");
}

TEST_CASE("inference says what it cannot do", "[models][inference][error]") {
  const OneThread one;
  const auto mlp = models::make_model("mlp");
  REQUIRE_THROWS_WITH(models::fold(*mlp), ContainsSubstring("only residual networks") &&
                                              ContainsSubstring("choose resnet18 or resnet34"));
  default_generator() = {.seed = 3};
  const ResNet model(small(Stem::cifar));
  const nn::FoldedNet folded = models::fold(model);
  REQUIRE_THROWS_WITH(nn::calibrate(folded, {}), ContainsSubstring("at least one batch of images; got none"));
  const Tensor none = Tensor::zeros({0, 3, 16, 16}), wrong = Tensor::zeros({2, 1, 16, 16}),
               infinite = ops::full({1, 3, 16, 16}, INFINITY), fine = test::random({2, 3, 16, 16}, 1);
  REQUIRE_THROWS_WITH(nn::calibrate(folded, {&none, 1}), ContainsSubstring("got f32 [0, 3, 16, 16]"));
  REQUIRE_THROWS_WITH(nn::calibrate(folded, {&wrong, 1}),
                      ContainsSubstring("[N, 3, H, W]; got f32 [2, 1, 16, 16]"));
  REQUIRE_THROWS_WITH(nn::calibrate(folded, {&infinite, 1}), ContainsSubstring("values must be finite"));
  REQUIRE_THROWS_WITH(nn::calibrate(folded, {&fine, 1}, {.percentile = 0}),
                      ContainsSubstring("(0, 100]; got 0"));
  REQUIRE_THROWS_WITH(InferenceNet(folded, DType::i8), ContainsSubstring("calibrate(); got i8"));
  REQUIRE_THROWS_WITH(InferenceNet(folded, nn::ValueLimits{1, 2}), ContainsSubstring("got 2 for 15 values"));
  nn::ValueLimits limits = nn::calibrate(folded, {&fine, 1});
  limits.at(3) = 0;
  REQUIRE_THROWS_WITH(InferenceNet(folded, limits),
                      ContainsSubstring("limits must be positive; got 0 for value 3"));
  REQUIRE_THROWS_WITH(InferenceNet(folded)(wrong), ContainsSubstring("[N, 3, H, W]; got f32 [2, 1, 16, 16]"));
  REQUIRE_THROWS_WITH(InferenceNet(nn::FoldedNet{}), ContainsSubstring("begins with a convolution"));
  nn::FoldedNet twisted = folded;
  twisted.steps.at(2).residual = 5;
  REQUIRE_THROWS_WITH(InferenceNet(twisted, limits), ContainsSubstring("residual 5 for step 2"));
}
