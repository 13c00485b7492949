// SPDX-License-Identifier: MIT
// tests/kernels/optimizer_kernels_test.cpp - one optimizer step: against PyTorch's formulas written out, against the
// reference, and bitwise whether flat memory is updated whole or in parts.
#include <cmath>

#include "core/parallel.h"
#include "tests/support/device.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

std::vector<SgdConstants> sgd_cases() {
  std::vector<SgdConstants> cases;
  for (float momentum : {0.0f, 0.9f})
    for (float decay : {0.0f, 0.01f})
      for (bool nesterov : {false, true})
        for (bool first : {false, true})
          cases.push_back({0.1f, momentum, 0.25f, decay, nesterov && momentum != 0, first});
  return cases;
}

constexpr AdamwConstants kAdamw{0.01f, 0.9f, 0.99f, 1e-6f, 0.1f, 0.271f, 0.029701f};

// Runs `step(begin, end)` on uneven parts of [0, n).
template <class Step>
void in_parts(std::int64_t n, const Step& step) {
  std::int64_t begin = 0;
  for (std::int64_t length = 1; begin < n; length = length * 3 + 1) {
    step(begin, std::min(n, begin + length));
    begin = std::min(n, begin + length);
  }
}

}  // namespace

TEST_CASE("an SGD step follows PyTorch's formula", "[kernels][optimizer]") {
  for (const SgdConstants& k : sgd_cases()) {
    INFO("momentum " << k.momentum << ", decay " << k.weight_decay << ", nesterov " << k.nesterov
                     << ", first " << k.first_step);
    const double p0 = 2, g0 = 0.5, b0 = -1.5;
    Tensor p = test::full({3}, p0, DType::f64), buf = test::full({3}, b0, DType::f64);
    test::fast().sgd(k, test::full({3}, g0, DType::f64), buf, p);
    const double lr = k.lr, momentum = k.momentum;
    const double g = g0 + static_cast<double>(k.weight_decay) * p0;
    const double b = k.first_step ? g : momentum * b0 + (1 - static_cast<double>(k.dampening)) * g;
    const double direction = momentum == 0 ? g : k.nesterov ? g + momentum * b : b;
    CHECK(test::differs(p, test::full({3}, p0 - lr * direction, DType::f64), 1e-15) == "");
    CHECK(test::differs(buf, test::full({3}, momentum == 0 ? b0 : b, DType::f64), 1e-15) == "");
  }
}

TEST_CASE("SGD without momentum needs no buffer", "[kernels][optimizer]") {
  Tensor p = test::full({4}, 1), none;
  test::fast().sgd(
      {.lr = 0.5f, .momentum = 0, .dampening = 0, .weight_decay = 0, .nesterov = false, .first_step = true},
      test::full({4}, 1), none, p);
  CHECK(test::values(p) == std::vector<double>(4, 0.5));
}

TEST_CASE("an AdamW step follows PyTorch's formula", "[kernels][optimizer]") {
  const AdamwConstants k = kAdamw;
  const double p0 = 2, g = 0.5, m0 = 0.25, v0 = 0.125;
  Tensor p = test::full({3}, p0, DType::f64), m = test::full({3}, m0, DType::f64),
         v = test::full({3}, v0, DType::f64);
  test::fast().adamw(k, test::full({3}, g, DType::f64), m, v, p);
  const double lr = k.lr, beta1 = k.beta1, beta2 = k.beta2;
  const double m1 = beta1 * m0 + (1 - beta1) * g, v1 = beta2 * v0 + (1 - beta2) * g * g;
  const double scale =
      std::sqrt(v1) / std::sqrt(static_cast<double>(k.bias_correction2)) + static_cast<double>(k.epsilon);
  const double p1 = p0 * (1 - lr * static_cast<double>(k.weight_decay)) -
                    lr / static_cast<double>(k.bias_correction1) * m1 / scale;
  CHECK(test::differs(m, test::full({3}, m1, DType::f64), 1e-15) == "");
  CHECK(test::differs(v, test::full({3}, v1, DType::f64), 1e-15) == "");
  CHECK(test::differs(p, test::full({3}, p1, DType::f64), 1e-15) == "");
}

TEST_CASE("optimizer kernels equal the reference", "[kernels][optimizer]") {
  const std::int64_t n = 70003;
  const Tensor grad = test::random({n}, 1), p0 = test::random({n}, 2), m0 = test::random({n}, 3);
  const Tensor v0 = ops::unary(Unary::abs, test::random({n}, 4));
  for (const SgdConstants& k : sgd_cases()) {
    Tensor p = ops::clone(p0), m = ops::clone(m0), q = ops::clone(p0), b = ops::clone(m0);
    test::fast().sgd(k, grad, m, p);
    test::reference().sgd(k, grad, b, q);
    CHECK(test::differs(p, q, 1e-6, 1e-6) == "");
    CHECK(test::differs(m, b, 1e-6, 1e-6) == "");
  }
  Tensor p = ops::clone(p0), m = ops::clone(m0), v = ops::clone(v0), q = ops::clone(p0), r = ops::clone(m0),
         s = ops::clone(v0);
  test::fast().adamw(kAdamw, grad, m, v, p);
  test::reference().adamw(kAdamw, grad, r, s, q);
  CHECK(test::differs(p, q, 1e-6, 1e-6) == "");
  CHECK(test::differs(m, r, 1e-6, 1e-6) == "");
  CHECK(test::differs(v, s, 1e-6, 1e-6) == "");
  test::fast().lerp(grad, 0.125, p);
  test::reference().lerp(grad, 0.125, q);
  CHECK(test::differs(p, q, 1e-6, 1e-6) == "");
}

TEST_CASE("an element's update does not depend on where flat memory is cut or on threads",
          "[kernels][optimizer]") {
  const std::int64_t n = 100003;
  const int threads = num_threads();
  const Tensor grad = test::random({n}, 1), p0 = test::random({n}, 2), m0 = test::random({n}, 3);
  const Tensor v0 = ops::unary(Unary::abs, test::random({n}, 4));
  const auto part = [](const Tensor& t, std::int64_t begin, std::int64_t end) {
    return t.slice(0, begin, end);
  };
  for (const SgdConstants& k : sgd_cases()) {
    Tensor p = ops::clone(p0), m = ops::clone(m0), q = ops::clone(p0), b = ops::clone(m0);
    set_num_threads(3);
    test::fast().sgd(k, grad, m, p);
    set_num_threads(1);
    in_parts(n, [&](std::int64_t begin, std::int64_t end) {
      Tensor x = part(q, begin, end), y = part(b, begin, end);
      test::fast().sgd(k, part(grad, begin, end), y, x);
    });
    CHECK(test::differs_bitwise(p, q) == "");
    CHECK(test::differs_bitwise(m, b) == "");
  }
  Tensor p = ops::clone(p0), m = ops::clone(m0), v = ops::clone(v0), q = ops::clone(p0), r = ops::clone(m0),
         s = ops::clone(v0);
  set_num_threads(3);
  test::fast().adamw(kAdamw, grad, m, v, p);
  test::fast().lerp(grad, 0.3, m);
  set_num_threads(1);
  in_parts(n, [&](std::int64_t begin, std::int64_t end) {
    Tensor x = part(q, begin, end), y = part(r, begin, end), z = part(s, begin, end);
    test::fast().adamw(kAdamw, part(grad, begin, end), y, z, x);
    test::fast().lerp(part(grad, begin, end), 0.3, y);
  });
  set_num_threads(threads);
  CHECK(test::differs_bitwise(p, q) == "");
  CHECK(test::differs_bitwise(m, r) == "");
  CHECK(test::differs_bitwise(v, s) == "");
}
