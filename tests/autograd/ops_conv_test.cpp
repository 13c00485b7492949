// SPDX-License-Identifier: MIT
// tests/autograd/ops_conv_test.cpp - derivatives of convolution and pooling.
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/conv.h"
#include "autograd/ops/reduce.h"
#include "core/span.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;

namespace {

struct ConvCase {
  Shape x, w;
  Window window;
};

// Every parameter of the window at least once, alone and with others, unequal in height and width.
const std::vector<ConvCase> kConvs = {
    {{2, 2, 4, 5}, {3, 2, 3, 3}, {}},
    {{2, 2, 4, 5}, {3, 2, 3, 3}, {.padding = {1, 1}}},
    {{1, 3, 5, 4}, {2, 3, 1, 1}, {}},
    {{1, 3, 5, 4}, {2, 3, 1, 1}, {.stride = {2, 2}}},
    {{1, 2, 5, 6}, {2, 2, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}}},
    {{1, 2, 7, 6}, {2, 2, 3, 3}, {.padding = {2, 1}, .dilation = {2, 1}}},
    {{2, 4, 4, 4}, {6, 2, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2}},
    {{1, 3, 4, 4}, {3, 1, 3, 3}, {.padding = {1, 1}, .groups = 3}},
};

struct PoolCase {
  Shape x;
  Window window;
};

const std::vector<PoolCase> kPools = {
    {{2, 2, 4, 4}, {.kernel = {2, 2}, .stride = {2, 2}}},
    {{1, 3, 5, 6}, {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}}},
    {{1, 2, 5, 5}, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}},
};

}  // namespace

TEST_CASE("conv2d has the derivative of its formula in both memory formats", "[autograd][conv]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  for (const ConvCase& c : kConvs) {
    INFO(str("x ", c.x, ", w ", c.w));
    const std::vector<Variable> inputs = {leaf(c.x, 1, format), leaf(c.w, 2), leaf({c.w[0]}, 3)};
    REQUIRE(wrong_gradient([&](const auto& in) { return conv2d(in[0], in[1], in[2], c.window); }, inputs) ==
            "");
    REQUIRE(wrong_gradient([&](const auto& in) { return conv2d(in[0], in[1], Variable(), c.window); },
                           {inputs[0], inputs[1]}) == "");
  }
}

TEST_CASE("conv2d gives the same gradients in both memory formats", "[autograd][conv]") {
  for (const ConvCase& c : kConvs) {
    INFO(str("x ", c.x, ", w ", c.w));
    const Variable x = leaf(c.x, 1), last = leaf(c.x, 1, MemoryFormat::channels_last);
    const Variable w = leaf(c.w, 2), b = leaf({c.w[0]}, 3);
    const Variable y = conv2d(x, w, b, c.window), y_last = conv2d(last, w, b, c.window);
    REQUIRE(differs(y_last.value(), y.value(), 1e-12, 1e-12) == "");
    const Tensor dy = random(y.shape(), 4, DType::f64);
    const auto expected = grad(y, {x, w, b}, {.gradient = dy});
    const auto got = grad(y_last, {last, w, b}, {.gradient = ops::clone(dy, MemoryFormat::channels_last)});
    for (std::size_t i = 0; i < 3; ++i) REQUIRE(differs(got[i], expected[i], 1e-12, 1e-12) == "");
  }
}

TEST_CASE("conv2d has the values of its formula", "[autograd][conv]") {
  const Variable x = leaf_of({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3});
  const Variable w = leaf_of({1, 0, 0, -1}, {1, 1, 2, 2}), b = leaf_of({10}, {1});
  const Variable y = conv2d(x, w, b, {});
  REQUIRE(values(y.value()) == std::vector<double>{6, 6, 6, 6});  // x[i, j] - x[i+1, j+1] + 10
  backward(sum(y));
  REQUIRE(values(w.grad()) == std::vector<double>{12, 16, 24, 28});  // Sums of the four 2×2 corners.
  REQUIRE(values(b.grad()) == std::vector<double>{4});
  REQUIRE(values(x.grad()) == std::vector<double>{1, 1, 0, 1, 0, -1, 0, -1, -1});
}

TEST_CASE("conv2d with a frozen weight does not read its input again for dx", "[autograd][conv]") {
  const Variable x = leaf({1, 2, 4, 4}, 1), w(random({3, 2, 3, 3}, 2, DType::f64));
  const Variable y = conv2d(x, w, Variable(), {});
  Tensor memory = x.value();
  ops::fill_(memory, 0);  // Would be refused if backward asked for x.
  backward(sum(y));
  REQUIRE(x.grad().shape() == x.shape());
}

TEST_CASE("conv2d writes the weight's gradient into the memory bound to it", "[autograd][conv]") {
  Variable w = leaf({3, 2, 3, 3}, 1), b = leaf({3}, 2);
  const Variable x(random({2, 2, 4, 4}, 3, DType::f64, MemoryFormat::channels_last));
  const auto loss = [&] { return sum(conv2d(x, w, b, {.padding = {1, 1}})); };
  const auto expected = grad(loss(), {w, b});
  const Tensor memory = ops::full({57}, 99.0, DType::f64);
  w.bind_grad(memory.slice(0, 0, 54).view({3, 2, 3, 3}));
  b.bind_grad(memory.slice(0, 54, 57));
  backward(loss());
  REQUIRE(differs(memory.slice(0, 0, 54).view({3, 2, 3, 3}), expected[0], 1e-12) == "");
  REQUIRE(differs(memory.slice(0, 54, 57), expected[1], 1e-12) == "");
}

namespace {

// A residual block's inside: the shortcut is recorded after the convolution, so that its gradient is there first.
Variable residual(const Variable& h, const Variable& w) {
  const Variable main = conv2d(h, w, Variable(), {.padding = {1, 1}});
  return main + h * 3.0;
}

// The gradient of x through h = 2 x; a hook on h keeps the two contributions apart.
Tensor gradient_through_block(const Variable& x, const Variable& w, const Tensor& dy,
                              const std::function<Tensor(const Tensor&)>& hook) {
  Variable h = x * 2.0;
  if (hook) h.register_hook(hook);
  return grad(residual(h, w), {x}, {.gradient = dy})[0];
}

}  // namespace

TEST_CASE("conv2d adds to the gradient that came through a shortcut what it would give by itself",
          "[autograd][conv]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    CAPTURE(name(dtype), format == MemoryFormat::channels_last);
    const Shape shape{17, 32, 3, 16};
    const Variable x = Variable::parameter(random(shape, 1, dtype, format));
    const Variable w =
        Variable::parameter(random({32, 32, 3, 3}, 2, dtype == DType::f64 ? DType::f64 : DType::f32));
    const Tensor dy = random(shape, 3, dtype, format);
    std::vector<Tensor> contributions;
    SpanTotals spans;
    const SpanListener listen(spans);
    const Tensor apart = gradient_through_block(x, w, dy, [&](const Tensor& g) {
      contributions.push_back(g);
      return Tensor();
    });
    REQUIRE(spans.of("add").calls == 2);  // In forward and in the engine.
    spans.clear();
    const Tensor together = gradient_through_block(x, w, dy, {});
    REQUIRE(spans.of("add").calls == 1);
    REQUIRE(contributions.size() == 2);
    REQUIRE(differs_bitwise(contributions[0], ops::mul(dy, 3.0)) == "");
    // Sums of 288 products of order 1; another algorithm may add than would write. bf16 has 8 bits.
    const double tolerance = dtype == DType::f64 ? 0 : dtype == DType::f32 ? 1e-5 : 0x1p-7;
    REQUIRE(differs(together, apart, tolerance, 17 * tolerance) == "");
  }
}

TEST_CASE("conv2d names both shapes when channels differ or dims are missing", "[autograd][conv][error]") {
  REQUIRE_THROWS_WITH(conv2d(leaf({8, 3, 32, 32}, 1), leaf({64, 4, 3, 3}, 2), Variable(), {}),
                      ContainsSubstring("conv2d") && ContainsSubstring("[8, 3, 32, 32]") &&
                          ContainsSubstring("[64, 4, 3, 3]"));
  REQUIRE_THROWS_WITH(
      conv2d(leaf({3, 8, 8}, 1), leaf({4, 3, 3}, 2), Variable(), {}),
      ContainsSubstring("conv2d") && ContainsSubstring("[3, 8, 8]") && ContainsSubstring("[4, 3, 3]"));
}

TEST_CASE("pooling has the derivative of its formula in both memory formats", "[autograd][pool]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  for (const PoolCase& c : kPools) {
    INFO(str("x ", c.x));
    const std::vector<Variable> x = {leaf(c.x, 1, format)};
    REQUIRE(wrong_gradient([&](const auto& in) { return max_pool2d(in[0], c.window); }, x) == "");
    REQUIRE(wrong_gradient([&](const auto& in) { return avg_pool2d(in[0], c.window); }, x) == "");
  }
}

TEST_CASE("adaptive_avg_pool2d has the derivative of its formula for sizes that do not divide",
          "[autograd][pool]") {
  const MemoryFormat format = GENERATE(MemoryFormat::contiguous, MemoryFormat::channels_last);
  const std::vector<Variable> x = {leaf({2, 3, 5, 7}, 1, format)};
  for (const auto& size : {std::pair{1, 1}, {2, 3}, {5, 7}, {3, 2}}) {
    CAPTURE(size.first, size.second);
    REQUIRE(wrong_gradient(
                [&](const auto& in) { return adaptive_avg_pool2d(in[0], size.first, size.second); }, x) ==
            "");
  }
}

TEST_CASE("pooling has the values of its formula, and equal maxima give to the first", "[autograd][pool]") {
  const Variable x = leaf_of({1, 7, 2, 3, 7, 0, 4, 4}, {1, 1, 2, 4});
  const Window window{.kernel = {2, 2}, .stride = {2, 2}};
  REQUIRE(values(avg_pool2d(x, window).value()) == std::vector<double>{3.75, 3.25});
  REQUIRE(values(adaptive_avg_pool2d(x, 1, 1).value()) == std::vector<double>{3.5});
  const Variable y = max_pool2d(x, window);
  REQUIRE(values(y.value()) == std::vector<double>{7, 4});
  backward(y, {.gradient = Tensor::from<double>({10, 20}, {1, 1, 1, 2})});
  REQUIRE(values(x.grad()) == std::vector<double>{0, 10, 0, 0, 0, 0, 20, 0});
}

TEST_CASE("pooling takes a stretched gradient", "[autograd][pool]") {
  const std::vector<Variable> x = {leaf({2, 3, 4, 4}, 1, MemoryFormat::channels_last)};
  const Window window{.kernel = {2, 2}, .stride = {2, 2}};
  REQUIRE(wrong_gradient([&](const auto& in) { return sum(max_pool2d(in[0], window), {2, 3}); }, x) == "");
  REQUIRE(wrong_gradient(
              [&](const auto& in) {
                return mean(adaptive_avg_pool2d(in[0], 2, 2), {0, 1});
              },
              x) == "");
}
