// SPDX-License-Identifier: MIT
// tests/kernels/attention_test.cpp - attention and its gradient against the formula written down, and what it refuses.
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "tests/kernels/compare.h"
#include "tests/support/test.h"

using namespace brigade;

namespace {

struct Case {
  std::int64_t batch, heads, queries, keys, width;
  bool causal;
};

// Sizes on both sides of the tiles' (16 or 32 rows, 64 columns), one of everything, and more keys than queries.
const std::vector<Case> kCases = {
    {1, 1, 1, 1, 1, true},     {2, 3, 5, 5, 4, true},    {1, 2, 33, 33, 20, true}, {2, 1, 40, 40, 64, true},
    {1, 1, 17, 17, 128, true}, {1, 2, 7, 50, 65, false}, {1, 1, 70, 9, 16, false}, {2, 2, 16, 16, 16, false}};

double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 4e-6 : 0x1p-7; }

struct Inputs {
  Tensor q, k, v, dout;
};

// Memory as a model's product leaves it: [N, T, H, D], so that rows of a head lie apart.
Inputs inputs(const Case& c, DType dtype) {
  const auto make = [&](std::int64_t length, std::uint64_t seed) {
    return test::random({c.batch, length, c.heads, c.width}, seed, dtype).transpose(1, 2);
  };
  return {make(c.queries, 1), make(c.keys, 2), make(c.keys, 3), make(c.queries, 4)};
}

struct Gradients {
  Tensor dq, dk, dv;
};

Gradients gradients(const Inputs& in, const ops::Attended& forward, const AttentionOptions& options) {
  Gradients g{ops::empty_like(in.q), ops::empty_like(in.k), ops::empty_like(in.v)};
  ops::attention_grad(in.dout, {in.q, in.k, in.v, forward.out, forward.log_sums}, options, g.dq, g.dk, g.dv);
  return g;
}

}  // namespace

TEST_CASE("attention and its gradient equal the reference for every dtype and size", "[kernels][attention]") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const Case& c : kCases) {
      INFO(str(dtype, ": batch ", c.batch, ", heads ", c.heads, ", queries ", c.queries, ", keys ", c.keys,
               ", width ", c.width, ", causal ", c.causal));
      const Inputs in = inputs(c, dtype);
      const AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(c.width)),
                                     .causal = c.causal};
      const double allowed = tolerance(dtype);
      const ops::Attended got = ops::attention(in.q, in.k, in.v, options);
      ops::Attended expected{ops::empty_like(got.out), ops::empty_like(got.log_sums)};
      test::reference().attention(in.q, in.k, in.v, options, expected.out, expected.log_sums);
      REQUIRE(test::far_from(got.out, expected.out, allowed) == "");
      REQUIRE(test::differs(got.log_sums, expected.log_sums, std::min(allowed, 1e-5), 1e-5) == "");

      const Gradients grads = gradients(in, got, options);
      Gradients right{ops::empty_like(in.q), ops::empty_like(in.k), ops::empty_like(in.v)};
      test::reference().attention_grad(in.dout, {in.q, in.k, in.v, got.out, got.log_sums}, options, right.dq,
                                       right.dk, right.dv);
      REQUIRE(test::far_from(grads.dv, right.dv, 2 * allowed) == "");
      REQUIRE(test::far_from(grads.dq, right.dq, 4 * allowed) == "");
      REQUIRE(test::far_from(grads.dk, right.dk, 4 * allowed) == "");
    }
}

TEST_CASE("attention of one key is its value, and of equal scores the mean", "[kernels][attention]") {
  const Tensor q = test::random({1, 2, 3, 4}, 1), v = test::random({1, 2, 3, 4}, 2);
  const Tensor k = test::full({1, 2, 3, 4}, 0);
  const ops::Attended all = ops::attention(q, k, v, {});
  const Tensor mean = ops::reduce(Reduction::mean, v, {2}, ops::KeepDims::yes).expand({1, 2, 3, 4});
  REQUIRE(test::differs(all.out, mean, 1e-6, 1e-6) == "");
  REQUIRE(test::differs(all.log_sums, test::full({1, 2, 3}, std::log(3.0)), 1e-6) == "");
  const ops::Attended causal = ops::attention(q, k, v, {.causal = true});
  REQUIRE(test::differs(causal.out.slice(2, 0, 1), v.slice(2, 0, 1), 1e-6) == "");
}

TEST_CASE("large scores do not overflow, and what is not finite stays visible", "[kernels][attention]") {
  const Tensor q = test::full({1, 1, 40, 8}, 100), v = test::random({1, 1, 40, 8}, 2);
  Tensor k = test::random({1, 1, 40, 8}, 3);
  const ops::Attended large = ops::attention(q, k, v, {.scale = 1, .causal = true});
  for (const double value : test::values(large.out)) REQUIRE(std::isfinite(value));
  Tensor one = k.slice(2, 35, 36);
  ops::fill_(one, std::numeric_limits<double>::quiet_NaN());
  const Tensor out = ops::attention(q, k, v, {.scale = 1, .causal = true}).out;
  for (const double value : test::values(out.slice(2, 0, 35))) REQUIRE(std::isfinite(value));
  for (const double value : test::values(out.slice(2, 35, 40))) REQUIRE(std::isnan(value));
}

TEST_CASE("attention has the same bits again, and with any number of threads",
          "[kernels][attention][repeat]") {
  const Inputs in = inputs({2, 3, 50, 50, 24, true}, DType::f32);
  const AttentionOptions options{.scale = 0.2, .causal = true};
  const int threads = num_threads();
  const ops::Attended first = ops::attention(in.q, in.k, in.v, options);
  const Gradients slopes = gradients(in, first, options);
  set_num_threads(1);
  const ops::Attended again = ops::attention(in.q, in.k, in.v, options);
  const Gradients others = gradients(in, again, options);
  set_num_threads(threads);
  REQUIRE(test::differs_bitwise(again.out, first.out) == "");
  REQUIRE(test::differs_bitwise(others.dq, slopes.dq) == "");
  REQUIRE(test::differs_bitwise(others.dk, slopes.dk) == "");
  REQUIRE(test::differs_bitwise(others.dv, slopes.dv) == "");
}

TEST_CASE("attention names what does not fit", "[kernels][attention][error]") {
  const Tensor q = test::random({2, 3, 4, 8}, 1), k = test::random({2, 3, 5, 8}, 2);
  REQUIRE_THROWS_WITH(ops::attention(q, k, k, {.causal = true}),
                      ContainsSubstring("causal needs a key for each query") &&
                          ContainsSubstring("[2, 3, 4, 8]") && ContainsSubstring("[2, 3, 5, 8]"));
  REQUIRE_THROWS_WITH(ops::attention(q, test::random({2, 1, 4, 8}, 2), test::random({2, 1, 4, 8}, 2), {}),
                      ContainsSubstring("must agree on N, H and D") && ContainsSubstring("[2, 1, 4, 8]"));
  REQUIRE_THROWS_WITH(ops::attention(q, k, q, {}), ContainsSubstring("shapes must be equal"));
  const Tensor wide = test::random({1, 1, 2, 129}, 1);
  REQUIRE_THROWS_WITH(ops::attention(wide, wide, wide, {}), ContainsSubstring("D must lie in [1, 128]"));
  const Tensor none = test::empty({1, 1, 0, 8});
  REQUIRE_THROWS_WITH(ops::attention(none, none, none, {}), ContainsSubstring("at least one key"));
  REQUIRE(
      ops::attention(none, test::random({1, 1, 2, 8}, 1), test::random({1, 1, 2, 8}, 2), {}).out.numel() ==
      0);
}
