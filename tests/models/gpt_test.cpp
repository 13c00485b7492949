// SPDX-License-Identifier: MIT
// tests/models/gpt_test.cpp - the transformer: names, the tied head, causality, and learning.
#include "models/gpt.h"

#include <algorithm>

#include "autograd/engine.h"
#include "autograd/no_grad.h"
#include "core/parallel.h"
#include "kernels/ops.h"
#include "nn/optim/adamw.h"
#include "nn/state_dict.h"
#include "tests/support/tensors.h"
#include "tests/support/test.h"

using namespace brigade;
using models::Gpt;
using models::GptOptions;

namespace {

GptOptions small() { return {.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 16}; }

Tensor ids(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

std::vector<Tensor> gradients(const GptOptions& options) {
  default_generator() = {.seed = 3};
  Gpt model(options);
  backward(next_token_loss(model, ids({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5})));
  std::vector<Tensor> out;
  for (const Variable& p : model.parameters()) out.push_back(p.grad());
  return out;
}

}  // namespace

TEST_CASE("a Gpt has GPT-2's names, and its head is the token table", "[models][gpt]") {
  const Gpt model(small());
  const auto parameters = model.named_parameters();
  REQUIRE(parameters.front().name == "wte.weight");
  REQUIRE(parameters.at(2).name == "h.0.ln_1.weight");
  REQUIRE(parameters.back().name == "ln_f.bias");  // lm_head.weight is wte.weight, counted above.
  // Tables, two blocks of 12 w² + 13 w, the last norm.
  REQUIRE(count_parameters(model) == (11 + 8) * 16 + 2 * (12 * 16 * 16 + 13 * 16) + 2 * 16);
  const NamedTensors state = nn::state_dict(model);
  REQUIRE(state.back().first == "lm_head.weight");
  REQUIRE(state.back().second.same_view(state.front().second));
  const bool has_attention = std::any_of(state.begin(), state.end(), [](const auto& entry) {
    return entry.first == "h.1.attn.c_attn.weight" && entry.second.shape() == Shape{48, 16};
  });
  REQUIRE(has_attention);
}

TEST_CASE("a position sees itself and what is before, nothing after", "[models][gpt]") {
  default_generator() = {.seed = 1};
  Gpt model(small());
  const NoGrad no_grad;
  const Tensor a = model(ids({1, 2, 3, 4, 5}, {1, 5})).value();
  const Tensor b = model(ids({1, 2, 3, 9, 5}, {1, 5})).value();  // Token 3 differs.
  REQUIRE(a.shape() == Shape{1, 5, 11});
  REQUIRE(test::differs(a.slice(1, 0, 3), b.slice(1, 0, 3), 0, 1e-6) == "");
  REQUIRE(test::differs(a.slice(1, 3, 4), b.slice(1, 3, 4), 0, 1e-3) != "");
  REQUIRE(test::differs(a.slice(1, 4, 5), b.slice(1, 4, 5), 0, 1e-6) != "");
}

TEST_CASE("a Gpt learns a short sequence by heart", "[models][gpt]") {
  const int threads = num_threads();
  // Thousands of tiny operations: waiting for a second thread would cost more than it gives.
  set_num_threads(1);
  for (const DType precision : {DType::f32, DType::bf16}) {
    default_generator() = {.seed = 2};
    GptOptions options = small();
    options.precision = precision;
    Gpt model(options);
    optim::FlatParameters parameters(model.named_parameters());
    optim::Adamw optimizer(parameters, 0.01, {.weight_decay = 0});
    // 1 and 5 have two successors: order matters.
    const Tensor tokens = ids({3, 1, 4, 1, 5, 9, 2, 6, 5}, {1, 9});
    double first = 0, last = 0;
    for (int step = 0; step < 50; ++step) {
      const Variable loss = next_token_loss(model, tokens);
      parameters.zero_grad();
      backward(loss);
      optimizer.step();
      (step == 0 ? first : last) = loss.item();
    }
    CAPTURE(name(precision));
    CHECK_THAT(first, Catch::Matchers::WithinAbs(std::log(11.0), 0.2));
    CHECK(last < 0.1);
  }
  set_num_threads(threads);
}

TEST_CASE("checkpointed blocks give the same gradients, dropout included", "[models][gpt]") {
  GptOptions options = small();
  options.dropout = 0.2;
  const std::vector<Tensor> plain = gradients(options);
  options.checkpoint_activations = true;
  const std::vector<Tensor> checkpointed = gradients(options);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    REQUIRE(ops::sum_of_squares(plain[i]) > 0);
    CHECK(test::differs(checkpointed[i], plain[i], 1e-5, 1e-6) == "");
  }
}

TEST_CASE("a Gpt refuses sequences and sizes that do not fit", "[models][gpt][error]") {
  Gpt model(small());
  CHECK_THROWS_WITH(model(Tensor::zeros({1, 9}, DType::i64)),
                    ContainsSubstring("T at most 8; got i64 [1, 9]"));
  CHECK_THROWS_WITH(model(Tensor::zeros({1, 3})), ContainsSubstring("ids must be i64"));
  CHECK_THROWS_WITH(next_token_loss(model, Tensor::zeros({1, 1}, DType::i64)), ContainsSubstring("T > 1"));
  GptOptions odd = small();
  odd.heads = 3;
  CHECK_THROWS_WITH(Gpt(odd), ContainsSubstring("heads must divide width; got heads 3, width 16"));
}
