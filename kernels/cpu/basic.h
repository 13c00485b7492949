// SPDX-License-Identifier: MIT
// kernels/cpu/basic.h - the CPU's slots for elementwise maths, random numbers, reductions, classification,
// embedding and optimizers. What each one computes is written at its slot in kernels/kernels.h;
// kernels/cpu/table.cpp puts them there. The other slots are in kernels/cpu/structured.h.
#pragma once

#include "kernels/kernels.h"

namespace brigade::cpu {

// copy.cpp
void fill(Tensor& out, double value);
void copy(const Tensor& x, Tensor& out);
void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out);

// unary.cpp, binary.cpp, binary_scalar.cpp
void unary(Unary op, const Tensor& x, Tensor& out);
void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out);
void binary_scalar(Binary op, const Tensor& a, double b, Tensor& out);

// random.cpp
void random_uniform(std::uint64_t seed, std::uint64_t stream, double low, double high, Tensor& out);
void random_normal(std::uint64_t seed, std::uint64_t stream, double mean, double std, Tensor& out);
void dropout(std::uint64_t seed, std::uint64_t stream, double p, const Tensor& x, Tensor& out);

// reduce.cpp
void reduce(Reduction op, const Tensor& x, Tensor& out);
void argmax(const Tensor& x, int dim, Tensor& out);
void sum_of_squares(const Tensor& x, Tensor& sum);

// classification.cpp
void softmax(const Tensor& x, Tensor& out);
void log_softmax(const Tensor& x, Tensor& out);
void softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx);
void log_softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx);
void cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing, std::int64_t ignore_index,
                   Tensor& loss, Tensor& log_probs);
void cross_entropy_grad(const Tensor& dloss, const Tensor& log_probs, const Tensor& labels, double smoothing,
                        std::int64_t ignore_index, Tensor& dlogits);

// embedding.cpp
void embedding(const Tensor& w, const Tensor& ids, Tensor& out);
void embedding_grad(const Tensor& dy, const Tensor& ids, Tensor& dw);
void find_out_of_range(const Tensor& ids, std::int64_t limit, std::int64_t allowed, Tensor& found);

// optimizer.cpp
void sgd(const SgdConstants& k, const Tensor& grad, Tensor& momentum, Tensor& param);
void adamw(const AdamwConstants& k, const Tensor& grad, Tensor& m, Tensor& v, Tensor& param);
void lerp(const Tensor& target, double weight, Tensor& average);
void clip_factor(double max_norm, const Tensor& squares, Tensor& factor);
void trust_ratio(const TrustConstants& k, const Tensor& value_squares, const Tensor& grad_squares,
                 Tensor& ratio);
void flag_non_finite(const Tensor& x, Tensor& flags, std::int64_t index);
void update_loss_scale(const LossScaleConstants& k, const Tensor& found, Tensor& scale, Tensor& good_steps);

}  // namespace brigade::cpu
