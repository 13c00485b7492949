// SPDX-License-Identifier: MIT
// tests/autograd/ops_attention_test.cpp - attention against central differences, and against products and softmax.
#include <limits>

#include "autograd/ops/arithmetic.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/pointwise.h"
#include "autograd/ops/shape_ops.h"
#include "tests/autograd/gradients.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::test;

namespace {

// softmax(scale q kᵀ, masked) v in single operations.
Variable composed(const Variable& q, const Variable& k, const Variable& v, const AttentionOptions& options) {
  Variable scores = matmul(q, transpose(k, -1, -2)) * options.scale;
  if (options.causal) {
    const Device device = q.value().device();
    const std::int64_t length = q.size(2);
    const Tensor positions = ops::arange(length, DType::i64, device);
    const Tensor seen = ops::binary(Binary::le, positions.view({1, length}), positions.view({length, 1}));
    scores =
        where(seen, scores, ops::full({1}, -std::numeric_limits<double>::infinity(), scores.dtype(), device));
  }
  return matmul(softmax(scores), v);
}

}  // namespace

TEST_CASE("attention has the derivative of its formula", "[autograd][attention][cpu]") {
  for (const bool causal : {false, true}) {
    const AttentionOptions options{.scale = 0.7, .causal = causal};
    const std::int64_t keys = causal ? 3 : 4;
    REQUIRE(wrong_gradient([&](const auto& in) { return attention(in[0], in[1], in[2], options); },
                           {leaf({2, 1, 3, 2}, 1), leaf({2, 1, keys, 2}, 2), leaf({2, 1, keys, 2}, 3)}) ==
            "");
    REQUIRE(wrong_gradient([&](const auto& in) { return self_attention(in[0], options); },
                           {leaf({1, 4, 3, 2, 3}, 1)}) == "");
  }
}

TEST_CASE("attention equals products and softmax, with its gradients", "[autograd][attention]") {
  const std::int64_t batch = 2, heads = 3, width = 12;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const std::int64_t length : {1, 7, 40})
      for (const bool causal : {false, true}) {
        INFO(str(dtype, ", length ", length, ", causal ", causal));
        const AttentionOptions options{.scale = 0.3, .causal = causal};
        const auto input = [&](std::uint64_t seed) {
          return Variable::parameter(random({batch, heads, length, width}, seed, dtype));
        };
        const Variable q = input(1), k = input(2), v = input(3);
        const Tensor dy = random({batch, heads, length, width}, 4, dtype);
        const Variable fused = attention(q, k, v, options), plain = composed(q, k, v, options);
        // Single operations round each of their results to 16 bits.
        const double allowed = dtype == DType::f64   ? 1e-12
                               : dtype == DType::f32 ? 1e-5
                               : dtype == DType::f16 ? 0.01
                                                     : 0.08;
        REQUIRE(differs(fused.value(), plain.value(), allowed, allowed) == "");
        const auto got = grad(fused, {q, k, v}, {.gradient = dy}),
                   expected = grad(plain, {q, k, v}, {.gradient = dy});
        for (std::size_t i = 0; i < got.size(); ++i) {
          INFO("input " << i);
          REQUIRE(differs(got[i], expected[i], allowed, allowed) == "");
        }
        // One tensor for all three has the bits of three.
        const Variable qkv = Variable::parameter(ops::contiguous(
            ops::stack(std::vector<Tensor>{q.value().transpose(1, 2), k.value().transpose(1, 2),
                                           v.value().transpose(1, 2)},
                       2)));
        const Variable packed = self_attention(qkv, options);
        REQUIRE(differs_bitwise(packed.value().transpose(1, 2), fused.value()) == "");
        const Tensor dqkv = grad(packed, {qkv}, {.gradient = ops::contiguous(dy.transpose(1, 2))})[0];
        for (int i = 0; i < 3; ++i)
          REQUIRE(differs_bitwise(dqkv.select(2, i).transpose(1, 2), got[static_cast<std::size_t>(i)]) == "");
      }
}

TEST_CASE("self_attention names what it needs", "[autograd][attention][error]") {
  REQUIRE_THROWS_WITH(self_attention(leaf({2, 3, 4, 5}, 1), {}), ContainsSubstring("[N, T, 3, H, D]"));
  REQUIRE_THROWS_WITH(self_attention(leaf({2, 3, 2, 4, 5}, 1), {}), ContainsSubstring("[2, 3, 2, 4, 5]"));
}
