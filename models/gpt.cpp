// SPDX-License-Identifier: MIT
// models/gpt.cpp - construction and forward of the transformer.
#include "models/gpt.h"

#include <algorithm>
#include <cmath>

#include "autograd/checkpoint.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/loss.h"
#include "autograd/ops/shape_ops.h"
#include "kernels/ops.h"

namespace brigade::models {

CausalAttention::CausalAttention(const GptOptions& options)
    : heads_(options.heads),
      c_attn_(options.width, 3 * options.width),
      c_proj_(options.width, options.width) {
  BRIGADE_CHECK(options.heads > 0 && options.width % options.heads == 0,
                "gpt: heads must divide width; got heads ", options.heads, ", width ", options.width);
  register_module("c_attn", c_attn_);
  register_module("c_proj", c_proj_);
}

Variable CausalAttention::forward(const Variable& x) {
  const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2), head = width / heads_;
  const Variable qkv = reshape(c_attn_(x), {batch, length, 3, heads_, head});
  const AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(head)), .causal = true};
  return c_proj_(reshape(self_attention(qkv, options), {batch, length, width}));
}

GptBlock::GptBlock(const GptOptions& options)
    : ln_1_(options.width), attn_(options), ln_2_(options.width), dropout_(options.dropout) {
  mlp_.add("c_fc", std::make_unique<nn::Linear>(options.width, 4 * options.width));
  mlp_.add("gelu", std::make_unique<nn::GELU>());
  mlp_.add("c_proj", std::make_unique<nn::Linear>(4 * options.width, options.width));
  register_module("ln_1", ln_1_);
  register_module("attn", attn_);
  register_module("ln_2", ln_2_);
  register_module("mlp", mlp_);
  register_module("dropout", dropout_);
}

Variable GptBlock::forward(const Variable& x) {
  const Variable y = x + dropout_(attn_(ln_1_(x)));
  return y + dropout_(mlp_(ln_2_(y)));
}

Gpt::Gpt(const GptOptions& options)
    : options_(options),
      wte_(options.vocabulary, options.width),
      wpe_(options.context, options.width),
      dropout_(options.dropout),
      ln_f_(options.width),
      lm_head_(wte_.weight) {
  register_module("wte", wte_);
  register_module("wpe", wpe_);
  register_module("dropout", dropout_);
  for (int i = 0; i < options.layers; ++i) h_.emplace<GptBlock>(options);
  register_module("h", h_);
  register_module("ln_f", ln_f_);
  register_module("lm_head", lm_head_);

  // Two additions a block enter the residual stream: their weights shrink so that its variance stays.
  const double residual = 1 / std::sqrt(2.0 * std::max(options.layers, 1));
  for (const auto& [name, variable] : named_parameters()) {
    Tensor value = variable.value();
    if (value.dims() == 2)
      ops::normal_(value, default_generator(), 0, 0.02 * (name.ends_with("c_proj.weight") ? residual : 1));
    else if (name.ends_with("bias"))
      ops::fill_(value, 0);
  }
}

Variable Gpt::forward(const Variable& ids) {
  BRIGADE_CHECK(ids.dims() == 2 && ids.dtype() == DType::i64 && ids.size(1) <= options_.context,
                "gpt: ids must be i64 [B, T] with T at most ", options_.context, "; got ", ids.value());
  Variable x = wte_(ids) + wpe_(ops::arange(ids.size(1), DType::i64, ids.value().device()));
  x = dropout_(cast(x, options_.precision));
  for (int i = 0; i < h_.size(); ++i) {
    const auto block = [&module = h_[i]](const Variable& v) { return module(v); };
    x = options_.checkpoint_activations ? checkpoint(block, x) : block(x);
  }
  return cast(lm_head_(ln_f_(x)), DType::f32);
}

Variable next_token_loss(Gpt& model, const Tensor& tokens) {
  BRIGADE_CHECK(tokens.dims() == 2 && tokens.size(1) > 1,
                "next_token_loss: tokens must be [B, T], T > 1; got ", tokens);
  const Variable logits = model(ops::contiguous(tokens.slice(1, 0, -1)));
  const Tensor targets = ops::reshape(tokens.slice(1, 1, tokens.size(1)), {-1});
  return cross_entropy(reshape(logits, {targets.numel(), logits.size(2)}), targets);
}

}  // namespace brigade::models
