// SPDX-License-Identifier: MIT
// nn/init.cpp - variances to bounds to random numbers.
#include "nn/init.h"

#include <cmath>

#include "kernels/ops.h"

namespace brigade::nn {

namespace {

// A uniform distribution in ± bound has variance bound² / 3.
void uniform_with_variance(Tensor& weight, Generator& generator, double variance) {
  const double bound = std::sqrt(3 * variance);
  ops::uniform_(weight, generator, -bound, bound);
}

double kaiming_variance(const Tensor& weight, const KaimingOptions& options) {
  const Fans f = fans(weight.shape());
  const auto fan = static_cast<double>(options.fan == Fan::in ? f.in : f.out);
  return 2 / ((1 + options.negative_slope * options.negative_slope) * fan);
}

double xavier_variance(const Tensor& weight, double gain) {
  const Fans f = fans(weight.shape());
  return 2 * gain * gain / static_cast<double>(f.in + f.out);
}

}  // namespace

Fans fans(const Shape& weight) {
  BRIGADE_CHECK(weight.size() >= 2, "init: fan in and out need a weight of two or more dims; got ", weight);
  std::int64_t kernel = 1;
  for (int i = 2; i < weight.size(); ++i) kernel *= weight[i];
  return {weight[1] * kernel, weight[0] * kernel};
}

void kaiming_uniform_(Tensor weight, Generator& generator, const KaimingOptions& options) {
  uniform_with_variance(weight, generator, kaiming_variance(weight, options));
}

void kaiming_normal_(Tensor weight, Generator& generator, const KaimingOptions& options) {
  ops::normal_(weight, generator, 0, std::sqrt(kaiming_variance(weight, options)));
}

void xavier_uniform_(Tensor weight, Generator& generator, double gain) {
  uniform_with_variance(weight, generator, xavier_variance(weight, gain));
}

void xavier_normal_(Tensor weight, Generator& generator, double gain) {
  ops::normal_(weight, generator, 0, std::sqrt(xavier_variance(weight, gain)));
}

void default_init_(Tensor weight, Tensor bias, Generator& generator) {
  // kaiming_uniform with slope sqrt(5): variance 2 / (6 fan) = 1 / (3 fan), that is a bound of 1 / sqrt(fan).
  kaiming_uniform_(weight, generator, {.negative_slope = std::sqrt(5.0)});
  if (!bias.defined()) return;
  const double bound = 1 / std::sqrt(static_cast<double>(fans(weight.shape()).in));
  ops::uniform_(bias, generator, -bound, bound);
}

}  // namespace brigade::nn
