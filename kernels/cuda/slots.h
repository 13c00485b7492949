// SPDX-License-Identifier: MIT
// kernels/cuda/slots.h - the slots of the kernel table on a GPU. What each one computes is written at its slot in
// kernels/kernels.h; kernels/cuda/table.cpp puts them there. Every slot enqueues on the calling thread's current
// stream and returns at once. Read next: kernels/cuda/device/device_kernels.h, which most of them call.
#pragma once

#include "kernels/kernels.h"

namespace brigade::cuda {

// elementwise.cpp
void fill(Tensor& out, double value);
void copy(const Tensor& x, Tensor& out);
void unary(Unary op, const Tensor& x, Tensor& out);
void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out);
void binary_scalar(Binary op, const Tensor& a, double b, Tensor& out);
void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out);
void quantize(const Tensor& x, double scale, Tensor& out);

// random.cpp
void random_uniform(std::uint64_t seed, std::uint64_t stream, double low, double high, Tensor& out);
void random_normal(std::uint64_t seed, std::uint64_t stream, double mean, double std, Tensor& out);
void dropout(std::uint64_t seed, std::uint64_t stream, double p, const Tensor& x, Tensor& out);

// reduce.cpp
void reduce(Reduction op, const Tensor& x, Tensor& out);
void argmax(const Tensor& x, int dim, Tensor& out);
void sum_of_squares(const Tensor& x, Tensor& sum);
void bias_grad(const Tensor& dy, Tensor& db);

// matmul.cpp: cuBLASLt
DType computed_in(DType dtype);
void matmul(const Tensor& a, const Tensor& b, double beta, Tensor& out);
void linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation then, Tensor& out);
void linear_grad_input(const Tensor& dy, const Tensor& w, Tensor& dx);
void linear_grad_weight(const Tensor& dy, const Tensor& x, Tensor& dw);

// conv.cpp: cuDNN
void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out);
void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments& moments);
void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, double beta, Tensor& dx);
void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw);
bool can_pack_conv2d(DType dtype);
std::unique_ptr<PackedConv> pack_conv2d(const PackedConvSpec& spec);

// pool.cpp: own kernels, because cuDNN does not say where a maximum was
void max_pool2d(const Tensor& x, const Window& window, Tensor& out, Tensor& index);
void max_pool2d_grad(const Tensor& dy, const Tensor& index, const Window& window, Tensor& dx);
void avg_pool2d(const Tensor& x, const Window& window, Tensor& out);
void avg_pool2d_grad(const Tensor& dy, const Window& window, Tensor& dx);
void adaptive_avg_pool2d(const Tensor& x, Tensor& out);
void adaptive_avg_pool2d_grad(const Tensor& dy, Tensor& dx);

// batch_norm.cpp: cuDNN
void batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, double momentum,
                      double epsilon, const BatchNormTail& tail, const ChannelMoments& moments,
                      Tensor& running_mean, Tensor& running_var, Tensor& out, Tensor& mean, Tensor& invstd,
                      Tensor& shift);
void batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                     const Tensor& running_var, double epsilon, const BatchNormTail& tail, Tensor& out);
void batch_norm_moments(const Tensor& x, Tensor& mean, Tensor& squares);
void batch_norm_grad_sums(const Tensor& dy, const BatchNormForward& forward, Tensor& dz, Tensor& dgamma,
                          Tensor& dbeta);
void batch_norm_grad_input(const Tensor& dy, const BatchNormForward& forward, const Tensor& dgamma,
                           const Tensor& dbeta, double count, Tensor& dx);

// layer_norm.cpp
void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon, Tensor& out,
                Tensor& mean, Tensor& invstd);
void layer_norm_grad(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                     const Tensor& invstd, Tensor& dx, Tensor& dgamma, Tensor& dbeta);

// classification.cpp
void softmax(const Tensor& x, Tensor& out);
void log_softmax(const Tensor& x, Tensor& out);
void softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx);
void log_softmax_grad(const Tensor& dy, const Tensor& y, Tensor& dx);
void cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing, std::int64_t ignore_index,
                   Tensor& loss, Tensor& log_probs);
void cross_entropy_grad(const Tensor& dloss, const Tensor& log_probs, const Tensor& labels, double smoothing,
                        std::int64_t ignore_index, Tensor& dlogits);

// attention.cpp
void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
               Tensor& out, Tensor& log_sums);
void attention_grad(const Tensor& dout, const AttentionForward& forward, const AttentionOptions& options,
                    Tensor& dq, Tensor& dk, Tensor& dv);

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

// augment.cpp
void augment_images(const Tensor& images, const Tensor& placements, const Tensor& values, std::int64_t cutout,
                    Tensor& out);

}  // namespace brigade::cuda
