// SPDX-License-Identifier: MIT
// tests/nn/init_test.cpp - ranges, variances and reproducibility of initial values.
#include "nn/init.h"

#include <algorithm>
#include <cmath>

#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

struct Moments {
  double mean, variance, largest;
};
Moments moments(const Tensor& t) {
  double sum = 0, squares = 0, largest = 0;
  for (const double v : test::values(t)) {
    sum += v;
    squares += v * v;
    largest = std::max(largest, std::abs(v));
  }
  const auto n = static_cast<double>(t.numel());
  return {sum / n, squares / n - sum / n * sum / n, largest};
}

// 64·32·9 = 18,432 draws: the standard deviation of a variance is about 1 %, of a mean under 1 % of σ.
const Shape kShape{64, 32, 3, 3};
constexpr double kFanIn = 32 * 9, kFanOut = 64 * 9;

void check_uniform(const Tensor& t, double bound) {
  const Moments m = moments(t);
  CHECK(m.largest <= bound);
  CHECK(m.largest > 0.999 * bound);
  CHECK(std::abs(m.mean) < 0.03 * bound);
  CHECK_THAT(m.variance, Catch::Matchers::WithinRel(bound * bound / 3, 0.05));
}

void check_normal(const Tensor& t, double std) {
  const Moments m = moments(t);
  CHECK(m.largest > 3 * std);  // A uniform of this variance ends at 1.73.
  CHECK(std::abs(m.mean) < 0.05 * std);
  CHECK_THAT(m.variance, Catch::Matchers::WithinRel(std * std, 0.05));
}

}  // namespace

TEST_CASE("fans count the elements of the kernel", "[nn][init]") {
  REQUIRE(nn::fans({64, 32, 3, 3}).in == 288);
  REQUIRE(nn::fans({64, 32, 3, 3}).out == 576);
  REQUIRE(nn::fans({10, 512}).in == 512);
  REQUIRE_THROWS_WITH(nn::fans({10}), ContainsSubstring("two or more dims; got [10]"));
}

TEST_CASE("Kaiming and Xavier values have their published range or variance", "[nn][init]") {
  Generator generator{.seed = 3};
  Tensor t = Tensor::empty(kShape);
  nn::kaiming_uniform_(t, generator);
  check_uniform(t, std::sqrt(6 / kFanIn));
  nn::kaiming_uniform_(t, generator, {.negative_slope = 2, .fan = nn::Fan::out});
  check_uniform(t, std::sqrt(6 / (5 * kFanOut)));
  nn::kaiming_normal_(t, generator);
  check_normal(t, std::sqrt(2 / kFanIn));
  nn::kaiming_normal_(t, generator, {.fan = nn::Fan::out});
  check_normal(t, std::sqrt(2 / kFanOut));
  nn::xavier_uniform_(t, generator);
  check_uniform(t, std::sqrt(6 / (kFanIn + kFanOut)));
  nn::xavier_normal_(t, generator, 3);
  check_normal(t, 3 * std::sqrt(2 / (kFanIn + kFanOut)));
}

TEST_CASE("layers start with PyTorch's default values", "[nn][init]") {
  default_generator() = {.seed = 4};
  const nn::Linear linear(100, 300);
  check_uniform(linear.weight.value(), 0.1);
  CHECK(moments(linear.bias.value()).largest <= 0.1);
  CHECK(moments(linear.bias.value()).largest > 0.09);
  const nn::Conv2d conv(32, 64, 3);
  check_uniform(conv.weight.value(), 1 / std::sqrt(kFanIn));
  CHECK(moments(conv.bias.value()).largest <= 1 / std::sqrt(kFanIn));
  const nn::Conv2d grouped(32, 64, 3, {.groups = 4});
  check_uniform(grouped.weight.value(), 1 / std::sqrt(kFanIn / 4));
  const nn::BatchNorm2d norm(5);
  CHECK(test::values(norm.weight.value()) == std::vector<double>(5, 1));
  CHECK(test::values(norm.bias.value()) == std::vector<double>(5, 0));
  const nn::Embedding embedding(200, 100);
  check_normal(embedding.weight.value(), 1);
}

TEST_CASE("construction is a function of the generator's seed alone", "[nn][init]") {
  const auto build = [](std::uint64_t seed) {
    default_generator() = {.seed = seed};
    const nn::Conv2d first(3, 8, 3), second(3, 8, 3);
    CHECK(test::differs_bitwise(first.weight.value(), second.weight.value()) != "");
    return second.weight.value();
  };
  REQUIRE(test::differs_bitwise(build(7), build(7)) == "");
  REQUIRE(test::differs_bitwise(build(7), build(8)) != "");
}
