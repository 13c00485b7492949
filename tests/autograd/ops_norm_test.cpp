// SPDX-License-Identifier: MIT
// tests/autograd/ops_norm_test.cpp - derivatives of batch and layer normalisation, and running statistics.
#include <cmath>
#include <functional>

#include "autograd/checkpoint.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/reduce.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;
using Catch::Matchers::StartsWith;
using Catch::Matchers::WithinAbs;

namespace {

RunningStats fresh_stats(std::int64_t channels, DType dtype = DType::f64) {
  return {ops::full({channels}, 0, dtype), ops::full({channels}, 1, dtype)};
}

RunningStats some_stats(std::int64_t channels) {
  return {random({channels}, 8, DType::f64), positive_leaf({channels}, 9).value()};
}

const std::vector<Shape> kShapes = {{4, 3}, {2, 3, 2, 3}, {3, 1, 2, 2}, {4, 5, 1, 1}};

MemoryFormat format_of(const Shape& shape, MemoryFormat wanted) {
  return shape.size() == 4 ? wanted : MemoryFormat::contiguous;
}

// What may follow a batch norm. `residual` is not used without `add`.
struct Ending {
  bool relu, add;
  BatchNormThen with(const Variable& residual) const { return {relu, add ? residual : Variable()}; }
};
constexpr Ending kEndings[] = {{true, false}, {false, true}, {true, true}};

using Norm = std::function<Variable(const Variable&, const Variable&, const Variable&, const BatchNormThen&)>;

// Batch norm in training, in training with combined statistics, and in evaluation.
std::vector<Norm> all_norms(std::int64_t channels, DType dtype) {
  const RunningStats running{random({channels}, 8, dtype), ops::full({channels}, 1.7, dtype)};
  return {[](const auto& x, const auto& gamma, const auto& beta, const BatchNormThen& then) {
            return batch_norm_train(x, gamma, beta, RunningStats(), 0.1, 1e-3, then);
          },
          [](const auto& x, const auto& gamma, const auto& beta, const BatchNormThen& then) {
            const auto alone = [](const Variable& sums) { return sums; };
            return batch_norm_train(x, gamma, beta, RunningStats(), 0.1, 1e-3, alone, then);
          },
          [running](const auto& x, const auto& gamma, const auto& beta, const BatchNormThen& then) {
            return batch_norm_eval(x, gamma, beta, running, 1e-3, then);
          }};
}

}  // namespace

TEST_CASE("batch_norm with what follows it in one pass has the derivative of its formula",
          "[autograd][norm]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  for (const Shape& shape : kShapes)
    for (const Ending& ending : kEndings) {
      INFO(str("x ", shape, ", relu ", ending.relu, ", add ", ending.add));
      const std::int64_t c = shape[1];
      std::vector<Variable> inputs = {leaf(shape, 1, format_of(shape, format)), leaf({c}, 2), leaf({c}, 3)};
      if (ending.add) inputs.push_back(leaf(shape, 4, format_of(shape, format)));
      for (const Norm& norm : all_norms(c, DType::f64))
        REQUIRE(wrong_gradient(
                    [&](const auto& in) {
                      return norm(in[0], in[1], in[2], ending.with(ending.add ? in[3] : Variable()));
                    },
                    inputs) == "");
    }
}

TEST_CASE("batch_norm in one pass with an addition and a ReLU has the bits of the three operations",
          "[autograd][norm]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{3, 65, 5, 3}, Shape{40, 64, 2, 2}, Shape{9, 7}})
      for (const Ending& ending : kEndings) {
        INFO(str(dtype, " x ", shape, ", relu ", ending.relu, ", add ", ending.add));
        const std::int64_t c = shape[1];
        const DType parameters = dtype == DType::f64 ? DType::f64 : DType::f32;
        const auto input = [&](std::uint64_t seed) {
          return Variable::parameter(random(shape, seed, dtype, format_of(shape, format)));
        };
        const Variable x = input(1), residual = input(4);
        const Variable gamma = Variable::parameter(random({c}, 2, parameters)),
                       beta = Variable::parameter(random({c}, 3, parameters));
        const Tensor dy = random(shape, 5, dtype, format_of(shape, format));
        // 16-bit activations are rounded once instead of up to three times, so that a sum near zero may change sign.
        const bool bits = dtype == DType::f32 || dtype == DType::f64 || !ending.add;
        for (const Norm& norm : all_norms(c, parameters)) {
          const Variable fused = norm(x, gamma, beta, ending.with(residual));
          Variable plain = norm(x, gamma, beta, {});
          if (ending.add) plain = plain + residual;
          if (ending.relu) plain = relu(plain);
          if (!bits) {
            REQUIRE(differs(fused.value(), plain.value(), 0x1p-6, 0x1p-6) == "");
            continue;
          }
          REQUIRE(differs_bitwise(fused.value(), plain.value()) == "");
          std::vector<Variable> inputs = {x, gamma, beta};
          if (ending.add) inputs.push_back(residual);
          const auto got = grad(fused, inputs, {.gradient = dy}),
                     expected = grad(plain, inputs, {.gradient = dy});
          for (std::size_t i = 0; i < inputs.size(); ++i) {
            INFO("input " << i);
            REQUIRE(differs_bitwise(got[i], expected[i]) == "");
          }
        }
      }
}

TEST_CASE("batch_norm writes over a gradient only where nobody else can see it", "[autograd][norm]") {
  const Shape shape = {4, 3, 2, 2};
  const Variable gamma = leaf({3}, 2), beta = leaf({3}, 3), x = leaf(shape, 1), residual = leaf(shape, 4);
  for (const Ending& ending : kEndings) {
    Variable y = batch_norm_train(x, gamma, beta, {}, 0.1, 1e-3, ending.with(residual));
    const Tensor weights = random(shape, 9, DType::f64);  // The one contribution to y's gradient.
    const Variable z = y * Variable(weights);
    Tensor kept;
    HookHandle hook = y.register_hook([&](const Tensor& dy) {
      kept = dy;
      return Tensor();
    });
    std::vector<Variable> inputs = {x};
    if (ending.add) inputs.push_back(residual);
    const auto first = grad(sum(z), inputs, {.retain_graph = true});
    REQUIRE(differs_bitwise(kept, weights) == "");
    kept = Tensor();
    hook.remove();  // Now the gradient is nobody else's.
    const auto again = grad(sum(z), inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) REQUIRE(differs_bitwise(again[i], first[i]) == "");
  }
}

TEST_CASE("batch_norm names what follows it where a gradient goes wrong", "[autograd][norm][error]") {
  const Variable x = leaf({4, 3}, 1), residual = leaf({4, 3}, 2);
  const auto message = [&](const BatchNormThen& then) -> std::string {
    const Variable y = batch_norm_train(x, {}, {}, {}, 0.1, 1e-3, then);
    Tensor value = x.value();
    value.bump_version();
    try {
      backward(sum(y));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  REQUIRE_THAT(message({}), StartsWith("batch_norm: a tensor saved"));
  REQUIRE_THAT(message({.relu = true}), StartsWith("batch_norm_relu: a tensor saved"));
  REQUIRE_THAT(message({.residual = residual}), StartsWith("batch_norm_add: a tensor saved"));
  REQUIRE_THAT(message({.relu = true, .residual = residual}),
               StartsWith("batch_norm_add_relu: a tensor saved"));
  REQUIRE_THROWS_WITH(batch_norm_train(x, {}, {}, {}, 0.1, 1e-3, {.residual = leaf({4, 1}, 2)}),
                      ContainsSubstring("[4, 3]") && ContainsSubstring("[4, 1]"));
}

TEST_CASE("batch_norm has the derivative of its formula in training and evaluation", "[autograd][norm]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  for (const Shape& shape : kShapes) {
    INFO(str("x ", shape));
    const std::int64_t c = shape[1];
    const std::vector<Variable> inputs = {leaf(shape, 1, format_of(shape, format)), leaf({c}, 2),
                                          leaf({c}, 3)};
    RunningStats untracked;
    REQUIRE(wrong_gradient(
                [&](const auto& in) { return batch_norm_train(in[0], in[1], in[2], untracked, 0.1, 1e-3); },
                inputs) == "");
    const RunningStats running = some_stats(c);
    REQUIRE(
        wrong_gradient([&](const auto& in) { return batch_norm_eval(in[0], in[1], in[2], running, 1e-3); },
                       inputs) == "");
  }
}

TEST_CASE("batch_norm with combined statistics has the derivative of its formula, whoever combines",
          "[autograd][norm]") {
  const auto alone = [](const Variable& sums) { return sums; };
  // Together with a share that holds, in channel c, the values c, c + 1 and c + 4, of which no loss is taken.
  std::vector<double> mean;  // Of the whole batch.
  const auto with_another = [&mean](const Variable& sums) {
    std::vector<double> theirs(static_cast<std::size_t>(sums.numel()));
    const bool second = theirs.size() == mean.size();
    for (std::size_t c = 0; second && c < theirs.size(); ++c)
      for (const double value : {0.0, 1.0, 4.0})
        theirs[c] += std::pow(static_cast<double>(c) + value - mean[c], 2);
    // The first call has a count behind its sums; backward's has two sums a channel.
    if (mean.empty()) {
      for (std::size_t c = 0; c + 1 < theirs.size(); ++c) theirs[c] = 3 * static_cast<double>(c) + 5;
      theirs.back() = 3;
    }
    const Variable total = sums + Tensor::from(theirs, sums.shape());
    if (mean.empty()) {
      mean = values(total.value());
      for (double& sum_of_channel : mean) sum_of_channel /= mean.back();
      mean.pop_back();
    }
    return total;
  };
  for (const Shape& shape : kShapes) {
    INFO(str("x ", shape));
    const std::int64_t c = shape[1];
    const std::vector<Variable> inputs = {leaf(shape, 1), leaf({c}, 2), leaf({c}, 3)};
    for (const CombineStatistics& combine : {CombineStatistics(alone), CombineStatistics(with_another)})
      REQUIRE(wrong_gradient(
                  [&](const auto& in) {
                    mean.clear();
                    return batch_norm_train(in[0], in[1], in[2], RunningStats(), 0.1, 1e-3, combine);
                  },
                  inputs) == "");
  }
}

TEST_CASE("batch_norm with combined statistics of one share is batch_norm", "[autograd][norm]") {
  const auto alone = [](const Variable& sums) { return sums; };
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last})
    for (const Shape& shape : kShapes) {
      INFO(str("x ", shape));
      const std::int64_t c = shape[1];
      const Variable x = leaf(shape, 1, format_of(shape, format)), gamma = leaf({c}, 2), beta = leaf({c}, 3);
      const RunningStats plain = fresh_stats(c), combined = fresh_stats(c);
      const Variable expected = batch_norm_train(x, gamma, beta, plain, 0.1, 1e-5);
      const Variable y = batch_norm_train(x, gamma, beta, combined, 0.1, 1e-5, alone);
      REQUIRE(y.value().memory_format() == expected.value().memory_format());
      REQUIRE(differs(y.value(), expected.value(), 1e-12, 1e-12) == "");
      REQUIRE(differs(combined.mean, plain.mean, 1e-12) == "");
      REQUIRE(differs(combined.var, plain.var, 1e-12) == "");
      const Variable none;
      const Variable bare = batch_norm_train(x, none, none, {}, 0.1, 1e-5);
      REQUIRE(differs(batch_norm_train(x, none, none, {}, 0.1, 1e-5, alone).value(), bare.value(), 1e-12,
                      1e-12) == "");
    }
}

TEST_CASE("layer_norm has the derivative of its formula", "[autograd][norm]") {
  for (const Shape& shape : {Shape{3, 4}, Shape{5}, Shape{2, 2, 3}, Shape{1, 2, 1, 6}}) {
    INFO(str("x ", shape));
    const std::int64_t width = shape.back();
    const std::vector<Variable> inputs = {leaf(shape, 1), leaf({width}, 2), leaf({width}, 3)};
    REQUIRE(wrong_gradient([](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-3); }, inputs) ==
            "");
  }
}

TEST_CASE("norms without gamma and beta behave as with ones and zeros", "[autograd][norm]") {
  const Variable x = leaf({4, 3, 2, 2}, 1);
  const Variable one(ops::full({3}, 1, DType::f64)), zero(ops::full({3}, 0, DType::f64)), none;
  const RunningStats running = some_stats(3);
  REQUIRE(differs_bitwise(batch_norm_train(x, none, none, {}, 0.1, 1e-5).value(),
                          batch_norm_train(x, one, zero, {}, 0.1, 1e-5).value()) == "");
  REQUIRE(differs_bitwise(batch_norm_eval(x, none, none, running, 1e-5).value(),
                          batch_norm_eval(x, one, zero, running, 1e-5).value()) == "");
  REQUIRE(wrong_gradient([&](const auto& in) { return batch_norm_train(in[0], none, none, {}, 0.1, 1e-3); },
                         {x}) == "");
  REQUIRE(wrong_gradient([&](const auto& in) { return batch_norm_eval(in[0], none, none, running, 1e-3); },
                         {x}) == "");
  REQUIRE(wrong_gradient([&](const auto& in) { return layer_norm(in[0], none, none, 1e-3); },
                         {leaf({4, 3}, 1)}) == "");
}

TEST_CASE("norms give parameter gradients when the input needs none, and the reverse", "[autograd][norm]") {
  const Variable x(random({4, 3}, 1, DType::f64)), gamma = leaf({3}, 2), beta = leaf({3}, 3);
  const Tensor dy = random({4, 3}, 4, DType::f64);
  const auto all =
      grad(batch_norm_train(leaf({4, 3}, 1), gamma, beta, {}, 0.1, 1e-3), {gamma, beta}, {.gradient = dy});
  const auto some = grad(batch_norm_train(x, gamma, beta, {}, 0.1, 1e-3), {gamma, beta}, {.gradient = dy});
  REQUIRE(differs_bitwise(some[0], all[0]) == "");
  REQUIRE(differs_bitwise(some[1], all[1]) == "");
  REQUIRE(
      wrong_gradient([&](const auto& in) { return layer_norm(in[0], gamma.detach(), beta.detach(), 1e-3); },
                     {leaf({4, 3}, 1)}) == "");
}

TEST_CASE("batch_norm normalises with the biased variance and tracks the unbiased one", "[autograd][norm]") {
  // Batch 1, 2, 3, 4: mean 2.5, biased variance 1.25, unbiased 1.66667.
  const Variable x = leaf_of({1, 2, 3, 4}, {4, 1, 1, 1});
  const Variable gamma = leaf_of({1}, {1}), beta = leaf_of({0}, {1});
  const RunningStats running = fresh_stats(1);
  const auto y = values(batch_norm_train(x, gamma, beta, running, 0.1, 0).value());
  REQUIRE_THAT(running.mean.item(), WithinAbs(0.25, 1e-12));
  REQUIRE_THAT(running.var.item(), WithinAbs(0.9 + 0.1 * 5.0 / 3.0, 1e-12));  // 1.066667
  for (int i = 0; i < 4; ++i)
    REQUIRE_THAT(y[static_cast<std::size_t>(i)], WithinAbs((i - 1.5) / std::sqrt(1.25), 1e-12));
  // Evaluation uses what was tracked.
  const auto z = values(batch_norm_eval(x, gamma, beta, running, 0).value());
  REQUIRE_THAT(z[0], WithinAbs((1 - 0.25) / std::sqrt(0.9 + 0.5 / 3.0), 1e-12));
}

TEST_CASE("batch_norm may run twice before backward: running statistics are not saved", "[autograd][norm]") {
  const Variable gamma = leaf({3}, 2), beta = leaf({3}, 3);
  const RunningStats running = fresh_stats(3);
  const Variable x1 = leaf({4, 3}, 4), x2 = leaf({4, 3}, 5);
  const Variable y1 = batch_norm_train(x1, gamma, beta, running, 0.1, 1e-5);
  const Variable y2 = batch_norm_train(x2, gamma, beta, running, 0.1, 1e-5);
  backward(sum(y1 * y1) + sum(y2));
  const Variable alone = batch_norm_train(x1, gamma, beta, {}, 0.1, 1e-5);
  REQUIRE(differs(x1.grad(), grad(sum(alone * alone), {x1})[0], 1e-12, 1e-14) == "");
}

TEST_CASE("batch_norm counts a batch once when a checkpoint computes it twice", "[autograd][norm]") {
  const Variable gamma = leaf({3}, 2), beta = leaf({3}, 3), x = leaf({4, 3}, 4);
  const RunningStats plain = fresh_stats(3), checked = fresh_stats(3);
  (void)batch_norm_train(x, gamma, beta, plain, 0.1, 1e-5);
  const auto segment = [&](const Variable& in) {
    return batch_norm_train(in, gamma, beta, checked, 0.1, 1e-5);
  };
  const Variable y = checkpoint(segment, x);
  backward(sum(y * y));
  REQUIRE(differs_bitwise(checked.mean, plain.mean) == "");
  REQUIRE(differs_bitwise(checked.var, plain.var) == "");
}

TEST_CASE("norms write parameter gradients into the memory bound to the parameters", "[autograd][norm]") {
  Variable gamma = leaf({3}, 1), beta = leaf({3}, 2);
  const Variable x = leaf({4, 3}, 3);
  const Tensor dy = random({4, 3}, 4, DType::f64);
  const auto layer = [&] { return layer_norm(x, gamma, beta, 1e-5); };
  const auto expected = grad(layer(), {gamma, beta}, {.gradient = dy});
  const Tensor memory = ops::full({6}, 99.0, DType::f64);
  gamma.bind_grad(memory.slice(0, 0, 3));
  beta.bind_grad(memory.slice(0, 3, 6));
  backward(layer(), {.gradient = dy});
  REQUIRE(differs_bitwise(memory.slice(0, 0, 3), expected[0]) == "");
  REQUIRE(differs_bitwise(memory.slice(0, 3, 6), expected[1]) == "");
}

TEST_CASE("norms name shapes that do not fit and missing statistics", "[autograd][norm][error]") {
  const Variable x = leaf({4, 3}, 1), three = leaf({3}, 2), five = leaf({5}, 3);
  REQUIRE_THROWS_WITH(batch_norm_train(x, five, five, {}, 0.1, 1e-5),
                      ContainsSubstring("[4, 3]") && ContainsSubstring("[5]"));
  REQUIRE_THROWS_WITH(batch_norm_eval(x, five, five, fresh_stats(3), 1e-5),
                      ContainsSubstring("[4, 3]") && ContainsSubstring("[5]"));
  REQUIRE_THROWS_WITH(layer_norm(x, five, five, 1e-5),
                      ContainsSubstring("[4, 3]") && ContainsSubstring("[5]"));
  REQUIRE_THROWS_WITH(batch_norm_eval(x, three, three, {}, 1e-5),
                      ContainsSubstring("batch_norm_eval: needs running statistics"));
}
