// SPDX-License-Identifier: MIT
// tests/dist/batch_norm_sync_test.cpp - synchronised batch norm against one rank with the whole batch (case A05).
// Ranks always get different data. The other policies: tests/dist/buffer_sync_test.cpp.
#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/shape_ops.h"
#include "dist/ddp.h"
#include "dist/sum_over_ranks.h"
#include "kernels/ops.h"
#include "nn/activations.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/optim/sgd.h"
#include "nn/sequential.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"
#include "tests/support/training.h"

using namespace brigade;
using namespace brigade::dist;
using test::require;

namespace {

constexpr std::int64_t kChannels = 5;

// Images of which rank r has its own [begin, end).
struct Share {
  std::int64_t begin, end, all;
};
Share equal_share(const ProcessGroup& group) {
  const std::int64_t each = 12 / group.size();
  return {group.rank() * each, (group.rank() + 1) * each, each * group.size()};
}
Share unequal_share(const ProcessGroup& group) {  // Rank r has r + 1 of them.
  const std::int64_t r = group.rank(), p = group.size();
  return {r * (r + 1) / 2, (r + 1) * (r + 2) / 2, p * (p + 1) / 2};
}

Share growing_share(const ProcessGroup& group) {  // Rank r has 2 r of them: rank 0 none.
  const std::int64_t r = group.rank(), p = group.size();
  return {r * (r - 1), r * (r + 1), p * (p - 1)};
}

Tensor images(std::int64_t count, std::uint64_t seed, MemoryFormat format) {
  return ops::clone(ops::binary(Binary::add, test::random({count, kChannels, 3, 2}, seed), 2.0), format);
}

Tensor part_of(const Tensor& t, const Share& share) {
  return ops::clone(t.slice(0, share.begin, share.end), t.memory_format());
}

std::vector<Tensor> copy_buffers(const nn::Module& module) {
  std::vector<Tensor> out;
  for (const auto& buffer : module.named_buffers()) out.push_back(ops::clone(buffer.tensor));
  return out;
}

// Different from 1 and 0, alike on all ranks.
void randomise(const nn::Module& module) {
  std::uint64_t seed = 40;
  for (const auto& p : module.named_parameters()) {
    Tensor value = p.variable.value();
    ops::copy_(value, test::random(value.shape(), ++seed));
  }
}

nn::NamedParameter mean_over_ranks(const nn::NamedParameter& p, ProcessGroup& group) {
  group.all_reduce(p.variable.grad(), Reduce::mean).wait();
  return p;
}

void synchronise(nn::Module& module, ProcessGroup& group) {
  nn::set_statistics_combiner(module, [&](const Variable& sums) { return sum_over_ranks(sums, group); });
}

struct Step {
  Tensor y, dx;
};

// One forward and backward of loss = scale · Σ weights · y.
Step run(nn::Module& module, const Tensor& x, const Tensor& weights, double scale) {
  Variable input = Variable::parameter(x);
  const Variable y = module(input);
  backward(sum(cast(y, DType::f32) * weights) * scale);
  return {y.value(), input.grad()};
}

// Three steps on this rank's share, synchronised, against three on the whole batch, on one rank's own.
void check_against_serial(ProcessGroup& group, const Share& share, MemoryFormat format) {
  nn::BatchNorm2d layer(kChannels), serial(kChannels);
  randomise(layer);
  randomise(serial);
  synchronise(layer, group);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = images(share.all, 10 + step, format);
    const Tensor weights = test::random(x.shape(), 20 + step);
    for (nn::Module* m : {static_cast<nn::Module*>(&layer), static_cast<nn::Module*>(&serial)})
      m->zero_grad();
    const Step whole = run(serial, x, weights, 1);
    // The loss of one rank counts p-fold, so that the mean over ranks is the loss of the whole batch.
    const Step mine = run(layer, part_of(x, share), part_of(weights, share), group.size());
    const std::string where = str("step ", step, ", rank ", group.rank(), " of ", group.size());
    require(mine.y.memory_format() == format, where + ": memory format");
    test::require_close({mine.y}, {part_of(whole.y, share)}, 2e-6, where + ": y");
    test::require_close({ops::mul(mine.dx, 1.0 / group.size())}, {part_of(whole.dx, share)}, 5e-6,
                        where + ": dx");
    for (const auto& p : layer.named_parameters()) mean_over_ranks(p, group);
    test::require_close(test::copy_gradients(layer), test::copy_gradients(serial), 5e-6,
                        where + ": parameters");
    test::require_close(copy_buffers(layer), copy_buffers(serial), 2e-6, where + ": buffers");
    test::require_same_on_all_ranks(copy_buffers(layer), group, where + ": buffers");
  }
}

}  // namespace

TEST_CASE("synchronised batch norm on p shares of a batch equals one rank on the whole batch",
          "[dist][batch_norm][ranks]") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
    test::for_each_world(
        [&](ProcessGroup& group) { check_against_serial(group, equal_share(group), format); });
}

TEST_CASE("synchronised batch norm weighs shares of different sizes, and of none, by their images",
          "[dist][batch_norm][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    check_against_serial(group, unequal_share(group), MemoryFormat::contiguous);
    if (group.size() > 1) check_against_serial(group, growing_share(group), MemoryFormat::contiguous);
  });
}

TEST_CASE("synchronised batch norm of bf16 activations has f32 statistics", "[dist][batch_norm][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    nn::BatchNorm2d layer(kChannels), serial(kChannels);
    synchronise(layer, group);
    const Share share = equal_share(group);
    const Tensor x = ops::cast(images(share.all, 3, MemoryFormat::channels_last), DType::bf16);
    const Tensor weights = test::random(x.shape(), 4);
    const Step whole = run(serial, x, weights, 1);
    const Step mine = run(layer, part_of(x, share), part_of(weights, share), 1);
    require(mine.y.dtype() == DType::bf16, "y stays bf16");
    // Both round y and dx once to 8 bits: one unit in the last place apart.
    test::require_close({mine.y}, {part_of(whole.y, share)}, 0x1p-8, "y");
    test::require_close({mine.dx}, {part_of(whole.dx, share)}, 0x1p-8, "dx");
    test::require_close(copy_buffers(layer), copy_buffers(serial), 2e-6, "buffers");
  });
}

TEST_CASE("synchronised batch norm is sound where the mean is large beside the deviations",
          "[dist][batch_norm][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    nn::BatchNorm2d layer(kChannels, {.epsilon = 1e-12});
    synchronise(layer, group);
    const Share share = equal_share(group);
    // Around 1000 neighbouring floats are 6e-5 apart: a deviation of 0.01 keeps 160 of them.
    const Tensor noise = ops::mul(test::random({share.all, kChannels, 3, 2}, 5), 0.01);
    const Tensor x = ops::binary(Binary::add, noise, 1000.0);
    const Tensor weights = test::random(x.shape(), 6);
    const Step mine = run(layer, part_of(x, share), part_of(weights, share), 1);

    Variable exact = Variable::parameter(ops::cast(x, DType::f64));
    const Variable y = batch_norm_train(exact, {}, {}, RunningStats(), 0.1, 1e-12);
    backward(sum(y * ops::cast(weights, DType::f64)));
    const auto expected = [&](const Tensor& t) { return ops::cast(part_of(t, share), DType::f32); };
    test::require_close({mine.y}, {expected(y.value())}, 1e-6, "y");
    // Backward knows the mean in f32 only, as on one rank: 3e-5, or 0.003 deviations off.
    test::require_close({mine.dx}, {expected(exact.grad())}, 3e-3, "dx");
  });
}

TEST_CASE("training with Ddp and synchronised batch norm equals one rank on the whole batch",
          "[dist][batch_norm][ddp][ranks]") {
  const auto make = [] {
    default_generator() = {.seed = 9};
    auto model = std::make_unique<nn::Sequential>();
    // Biases before a batch norm would have a gradient of zero: nothing to compare.
    model->emplace<nn::Conv2d>(3, 8, 3, nn::Conv2dOptions{.bias = false});
    model->emplace<nn::BatchNorm2d>(8);
    model->emplace<nn::ReLU>();
    model->emplace<nn::Conv2d>(8, 4, 3, nn::Conv2dOptions{.bias = false});
    model->emplace<nn::BatchNorm2d>(4);
    return model;
  };
  test::for_each_world([&](ProcessGroup& group) {
    const auto model = make(), serial = make();
    Ddp ddp(model->named_parameters(), model->named_buffers(), group,
            {.plan = {.caps = {.bytes = 1000, .first_bytes = 100}}});
    optim::FlatParameters whole(serial->named_parameters());
    optim::Sgd optimizer(ddp.parameters(), 0.05, {.momentum = 0.9}),
        serial_optimizer(whole, 0.05, {.momentum = 0.9});
    synchronise(*model, group);
    const Share share = equal_share(group);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Tensor x = test::random({share.all, 3, 7, 7}, 30 + step);
      const Tensor weights = test::random({share.all, 4, 3, 3}, 50 + step);
      ddp.parameters().zero_grad();
      whole.zero_grad();
      backward(mean((*model)(part_of(x, share)) * part_of(weights, share)));
      backward(mean((*serial)(x)*weights));
      optimizer.step();
      serial_optimizer.step();
    }
    test::require_close(test::copy_values(*model), test::copy_values(*serial), 2e-5, "parameters");
    test::require_close(copy_buffers(*model), copy_buffers(*serial), 2e-5, "buffers");
  });
}

TEST_CASE("two forwards before one backward work with synchronised batch norm",
          "[dist][batch_norm][ranks][A05]") {
  test::for_each_world([&](ProcessGroup& group) {
    nn::BatchNorm2d layer(kChannels), serial(kChannels);
    synchronise(layer, group);
    const Share share = equal_share(group);
    const Tensor x1 = images(share.all, 1, MemoryFormat::contiguous),
                 x2 = images(share.all, 2, MemoryFormat::contiguous);
    const Tensor weights = test::random(x1.shape(), 3);
    const auto loss = [&](nn::Module& module, const auto& mine) {
      const Variable first = module(mine(x1));
      const Variable second = module(mine(x2));
      return sum((first * first + second) * mine(weights));
    };
    backward(loss(layer, [&](const Tensor& t) { return part_of(t, share); }) * group.size());
    backward(loss(serial, [](const Tensor& t) { return t; }));
    for (const auto& p : layer.named_parameters()) mean_over_ranks(p, group);
    test::require_close(test::copy_gradients(layer), test::copy_gradients(serial), 5e-6, "gradients");
    test::require_close(copy_buffers(layer), copy_buffers(serial), 2e-6, "buffers");
  });
}

TEST_CASE("a checkpoint's second run combines again and tracks once", "[dist][batch_norm][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    nn::BatchNorm2d plain(kChannels), kept(kChannels);
    synchronise(plain, group);
    synchronise(kept, group);
    const Tensor x = images(4, static_cast<std::uint64_t>(group.rank()), MemoryFormat::contiguous);
    const Tensor weights = test::random(x.shape(), 7);
    const Step expected = run(plain, x, weights, 1);
    Variable input = Variable::parameter(x);
    const Variable y = checkpoint([&](const Variable& v) { return kept(v); }, input);
    backward(sum(y * weights));
    test::require_same({y.value(), input.grad()}, {expected.y, expected.dx}, "y and dx");
    test::require_same(test::copy_gradients(kept), test::copy_gradients(plain), "parameters");
    test::require_same(copy_buffers(kept), copy_buffers(plain), "buffers");
  });
}

TEST_CASE("one value per channel is enough on a rank, not in the whole batch",
          "[dist][batch_norm][ranks][error]") {
  test::for_each_world([&](ProcessGroup& group) {
    nn::BatchNorm2d layer(3);
    synchronise(layer, group);
    const Tensor x = test::random({1, 3, 1, 1}, static_cast<std::uint64_t>(group.rank()));
    const std::string thrown = test::thrown_by([&] { layer(x); });
    if (group.size() > 1) return require(thrown.empty(), thrown);
    test::require_contains(
        thrown, "batch_norm: training needs more than one value per channel; got 1 in the whole batch");
    require(copy_buffers(layer)[2].item() == 0, "nothing was counted");
  });
}

TEST_CASE("the combiner reaches every batch norm of a tree, can be taken away, and is silent in evaluation",
          "[dist][batch_norm][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    nn::Sequential model;
    model.emplace<nn::BatchNorm2d>(3);
    auto& inner = model.emplace<nn::Sequential>();
    inner.emplace<nn::Conv2d>(3, 4, 1);
    inner.emplace<nn::BatchNorm2d>(4);
    int calls = 0;
    const auto combine = [&](const Variable& sums) {
      ++calls;
      return sum_over_ranks(sums, group);
    };
    require(nn::set_statistics_combiner(model, combine) == 2, "two layers");
    const Tensor x = test::random({2, 3, 2, 2}, static_cast<std::uint64_t>(group.rank()));
    model(x);
    require(calls == 4, "two sums a layer");
    model.eval();
    if (group.rank() == 0) model(x);  // A collective here would wait for the others.
    model.train();
    nn::set_statistics_combiner(model, {});
    model(x);
    require(calls == 4, "silent");
  });
}

TEST_CASE("sum_over_ranks has the derivative of a sum to which every rank's loss belongs",
          "[dist][batch_norm][ranks]") {
  test::for_each_world([&](ProcessGroup& group) {
    const double p = group.size(), r = group.rank();
    Variable x = Variable::parameter(ops::full({3}, 1 + r));
    const Variable total = sum_over_ranks(x, group);
    backward(sum(total * total) * (1 + r));  // dloss/dtotal = 2 (1 + r) total
    const double sum_of_ranks = p * (p + 1) / 2;
    test::require_same({total.value()}, {ops::full({3}, sum_of_ranks)}, "total");
    test::require_same({x.grad()}, {ops::full({3}, 2 * sum_of_ranks * sum_of_ranks)}, "gradient");
    test::require_same({x.value()}, {ops::full({3}, 1 + r)}, "x itself");
  });
}
