// SPDX-License-Identifier: MIT
// tests/autograd/ops_loss_test.cpp - derivatives of softmax, losses and the table lookup, and wrong labels.
#include <cmath>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/shape_ops.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;
using Catch::Matchers::WithinAbs;

namespace {

Tensor labels(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

// -Σ target log softmax, the formula of loss.h written with plain loops.
double expected_loss(const Tensor& logits, const std::vector<std::int64_t>& labels,
                     const CrossEntropyOptions& options) {
  const auto x = values(logits);
  const auto classes = static_cast<std::size_t>(logits.size(1));
  double total = 0, counted = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == options.ignore_index) continue;
    double z = 0;
    for (std::size_t c = 0; c < classes; ++c) z += std::exp(x[row * classes + c]);
    for (std::size_t c = 0; c < classes; ++c) {
      const double hit = static_cast<std::int64_t>(c) == labels[row] ? 1 : 0;
      const double s = options.label_smoothing;
      total -= ((1 - s) * hit + s / static_cast<double>(classes)) * (x[row * classes + c] - std::log(z));
    }
    ++counted;
  }
  return total / counted;
}

}  // namespace

TEST_CASE("cross_entropy has the value and derivative of its formula with smoothing and ignored rows",
          "[autograd][loss]") {
  const double smoothing = GENERATE(0.0, 0.1, 1.0);
  struct Case {
    std::vector<std::int64_t> wanted;
    std::int64_t ignored;
  };
  const std::vector<Case> cases = {
      {{0, 2, 1, 3}, -100}, {{-100, 2, -100, 3}, -100}, {{1, 0, 1, 1}, 1}, {{3, 3, 3, 3}, -100}};
  for (const Case& c : cases) {
    const Variable logits = leaf({4, 4}, 1);
    const CrossEntropyOptions options{.label_smoothing = smoothing, .ignore_index = c.ignored};
    CAPTURE(smoothing, c.wanted, c.ignored);
    REQUIRE_THAT(cross_entropy(logits, labels(c.wanted), options).item(),
                 WithinAbs(expected_loss(logits.value(), c.wanted, options), 1e-12));
    REQUIRE(wrong_gradient([&](const auto& in) { return cross_entropy(in[0], labels(c.wanted), options); },
                           {logits}) == "");
  }
}

TEST_CASE("cross_entropy of a scaled loss scales its gradient", "[autograd][loss]") {
  REQUIRE(wrong_gradient(
              [&](const auto& in) {
                return cross_entropy(in[0], labels({1, 0})) * 3.0;
              },
              {leaf({2, 3}, 1)}) == "");
}

TEST_CASE("cross_entropy of equal logits is the log of the class count", "[autograd][loss]") {
  const Variable logits = leaf_of(std::vector<double>(20, 0.0), {2, 10});
  const Variable loss = cross_entropy(logits, labels({3, 9}));
  REQUIRE_THAT(loss.item(), WithinAbs(std::log(10.0), 1e-12));
  backward(loss);
  const auto gradient = values(logits.grad());
  REQUIRE_THAT(gradient[3], WithinAbs((0.1 - 1) / 2, 1e-12));
  REQUIRE_THAT(gradient[4], WithinAbs(0.1 / 2, 1e-12));
}

TEST_CASE("cross_entropy stays finite for large logits", "[autograd][loss]") {
  const Variable logits = leaf_of({1000, 0, -1000, 1000}, {2, 2});
  const Variable loss = cross_entropy(logits, labels({1, 1}));
  REQUIRE(loss.item() == 500);
  backward(loss);
  REQUIRE(values(logits.grad()) == std::vector<double>{0.5, -0.5, 0, 0});
}

TEST_CASE("a label outside the classes is refused with sample, label and class count, and work goes on",
          "[autograd][loss][error]") {
  const Variable logits = leaf({3, 10}, 1);
  const std::vector<std::vector<std::int64_t>> wrong = {{10, 255, -1}, {9, 255, -1}, {9, 0, -1}};
  for (std::size_t sample = 0; sample < wrong.size(); ++sample)
    REQUIRE_THROWS_WITH(cross_entropy(logits, labels(wrong[sample])),
                        ContainsSubstring("cross_entropy") && ContainsSubstring(str("sample ", sample)) &&
                            ContainsSubstring(str("label ", wrong[sample][sample])) &&
                            ContainsSubstring("10 classes"));
  const Variable loss = cross_entropy(logits, labels({9, 0, 1}));
  backward(loss);
  REQUIRE(std::isfinite(loss.item()));
}

TEST_CASE("labels changed between forward and backward are refused", "[autograd][loss][error]") {
  const Variable logits = leaf({2, 3}, 1);
  Tensor wanted = labels({1, 2});
  const Variable loss = cross_entropy(logits, wanted);
  ops::fill_(wanted, 0);
  REQUIRE_THROWS_WITH(backward(loss),
                      ContainsSubstring("cross_entropy") && ContainsSubstring("modified in place"));
}

TEST_CASE("mse_loss has the value and derivative of its formula, for both sides", "[autograd][loss]") {
  const Variable x = leaf_of({1, 2, 3}, {3}), target = leaf_of({2, 2, 5}, {3});
  REQUIRE_THAT(mse_loss(x, target).item(), WithinAbs(5.0 / 3, 1e-12));
  REQUIRE(wrong_gradient([](const auto& in) { return mse_loss(in[0], in[1]) * 2.0; },
                         {leaf({3, 4}, 1), leaf({3, 4}, 2)}) == "");
  REQUIRE_THROWS_WITH(mse_loss(leaf({3, 1}, 1), leaf({3}, 2)), ContainsSubstring("mse_loss") &&
                                                                   ContainsSubstring("[3, 1]") &&
                                                                   ContainsSubstring("[3]"));
}

TEST_CASE("softmax and log_softmax have the derivative of their formula", "[autograd][loss]") {
  for (const Shape& shape : {Shape{3, 4}, Shape{5}, Shape{2, 2, 3}}) {
    INFO(str("x ", shape));
    REQUIRE(wrong_gradient([](const auto& in) { return softmax(in[0]); }, {leaf(shape, 1)}) == "");
    REQUIRE(wrong_gradient([](const auto& in) { return log_softmax(in[0]); }, {leaf(shape, 1)}) == "");
  }
  // A strided input, and a stretched gradient.
  REQUIRE(wrong_gradient([](const auto& in) { return sum(softmax(transpose(in[0], 0, 1)) * 2.0, {0}); },
                         {leaf({3, 4}, 1)}) == "");
  REQUIRE(wrong_gradient([](const auto& in) { return sum(log_softmax(transpose(in[0], 0, 1)), {0}); },
                         {leaf({3, 4}, 1)}) == "");
}

TEST_CASE("softmax sums to one and agrees with log_softmax", "[autograd][loss]") {
  const Variable x = leaf({3, 4}, 1);
  const Variable y = softmax(x);
  REQUIRE(differs(sum(y, {1}).value(), ops::full({3}, 1, DType::f64), 1e-12) == "");
  REQUIRE(differs(ops::unary(Unary::exp, log_softmax(x).value()), y.value(), 1e-12) == "");
}

TEST_CASE("embedding adds the gradients of equal ids", "[autograd][embedding]") {
  const Variable w = leaf_of({1, 2, 3, 4, 5, 6}, {3, 2});
  const Variable y = embedding(w, labels({2, 0, 2}));
  REQUIRE(values(y.value()) == std::vector<double>{5, 6, 1, 2, 5, 6});
  backward(y, {.gradient = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {3, 2})});
  REQUIRE(values(w.grad()) == std::vector<double>{3, 4, 0, 0, 6, 8});
}

TEST_CASE("embedding has the derivative of its formula for ids of any shape", "[autograd][embedding]") {
  const Tensor ids = labels({4, 0, 4, 1, 3, 3});
  for (const Shape& shape : {Shape{6}, Shape{2, 3}, Shape{1, 3, 2}}) {
    INFO(str("ids ", shape));
    REQUIRE(wrong_gradient([&](const auto& in) { return embedding(in[0], ids.view(shape)); },
                           {leaf({5, 3}, 1)}) == "");
  }
}

TEST_CASE("a table shared by the embedding and the head of a model collects both gradients",
          "[autograd][embedding]") {
  const Tensor ids = labels({1, 3, 1});
  const auto tied = [&](const std::vector<Variable>& in) {
    return cross_entropy(linear(embedding(in[0], ids), in[0], Variable()), ids);
  };
  const Variable table = leaf({4, 3}, 1);
  REQUIRE(wrong_gradient(tied, {table}) == "");
  // The same when both contributions go into bound memory.
  const Tensor expected = grad(tied({table}), {table})[0];
  Variable bound = table;
  const Tensor memory = ops::full({4, 3}, 99.0, DType::f64);
  bound.bind_grad(memory);
  backward(tied({bound}));
  REQUIRE(differs(memory, expected, 1e-12, 1e-14) == "");
}

TEST_CASE("an id outside the table is refused with position, id and table size",
          "[autograd][embedding][error]") {
  const Variable w = leaf({5, 2}, 1);
  for (const std::int64_t id : {std::int64_t{5}, std::int64_t{-1}})
    REQUIRE_THROWS_WITH(embedding(w, labels({0, 4, id})),
                        ContainsSubstring("embedding") && ContainsSubstring("2") &&
                            ContainsSubstring(str(id)) && ContainsSubstring("5"));
}
