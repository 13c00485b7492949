// SPDX-License-Identifier: MIT
// models/gpt.h - a small decoder-only transformer (Radford et al., "Language models are unsupervised multitask
// learners", 2019): a second kind of model, with a shared (tied) parameter and layer norms.
// Read before: nn/embedding.h, nn/layer_norm.h.
#pragma once

#include "nn/activations.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/sequential.h"

namespace brigade::models {

struct GptOptions {
  std::int64_t vocabulary = 256;
  std::int64_t context = 64;  ///< Longest sequence.
  int layers = 2;
  int heads = 2;  ///< Divides width.
  std::int64_t width = 64;
  double dropout = 0;
  DType precision = DType::f32;         ///< Of activations; parameters and logits are f32.
  bool checkpoint_activations = false;  ///< Keep only the input of each block for backward.
};

/// Causal self-attention: position t sees positions 0 … t. x [B, T, width] -> same.
class CausalAttention : public nn::Module {
 public:
  explicit CausalAttention(const GptOptions& options);
  Variable forward(const Variable& x) override;

 private:
  int heads_;
  nn::Linear c_attn_;  // Queries, keys and values in one product.
  nn::Linear c_proj_;
};

/// x + attention(norm(x)), then x + mlp(norm(x)).
class GptBlock : public nn::Module {
 public:
  explicit GptBlock(const GptOptions& options);
  Variable forward(const Variable& x) override;

 private:
  nn::LayerNorm ln_1_;
  CausalAttention attn_;
  nn::LayerNorm ln_2_;
  nn::Sequential mlp_;  // c_fc, gelu, c_proj
  nn::Dropout dropout_;
};

/// ids i64 [B, T] -> logits f32 [B, T, vocabulary]. GPT-2's parameter names and initial
/// values; `lm_head.weight` is `wte.weight`.
class Gpt : public nn::Module {
 public:
  explicit Gpt(const GptOptions& options);
  Variable forward(const Variable& ids) override;

 private:
  GptOptions options_;
  nn::Embedding wte_, wpe_;  // Of tokens and of positions.
  nn::Dropout dropout_;
  nn::Sequential h_;
  nn::LayerNorm ln_f_;
  nn::Linear lm_head_;
};

/// Mean cross-entropy of predicting tokens[:, 1:] from tokens[:, :-1]; tokens i64 [B, T], T > 1.
Variable next_token_loss(Gpt& model, const Tensor& tokens);

}  // namespace brigade::models
