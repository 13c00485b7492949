// SPDX-License-Identifier: MIT
// kernels/cpu/structured.h - the CPU's slots for products, convolution, pooling and normalisation. What each
// one computes is written at its slot in kernels/kernels.h; kernels/cpu/table.cpp puts them there.
#pragma once

#include "kernels/kernels.h"

namespace brigade::cpu {

// matmul.cpp
/// The dtype that products and convolutions of `dtype` are computed in: f32 for f16, and for bf16 on a
/// processor for which oneDNN has no bf16 primitives.
DType computed_in(DType dtype);
/// out = a b + bias + beta out, where a and b are floating and of one dtype and out is that or f32: the
/// product behind matmul, linear and the im2col convolution. bias [N] is f32 (f64 beside f64) or undefined;
/// beta is 0 or 1.
void product(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, Tensor& out);
void matmul(const Tensor& a, const Tensor& b, double beta, Tensor& out);
void linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation then, Tensor& out);
void linear_grad_input(const Tensor& dy, const Tensor& w, Tensor& dx);
void linear_grad_weight(const Tensor& dy, const Tensor& x, Tensor& dw);

// conv.cpp
void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out);
void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments& moments);
void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, double beta, Tensor& dx);
void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw);

// conv_im2col.cpp: the same three as matrix products, for any floating dtype;
// activations dense in either format.
namespace im2col {
void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out);
void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw);
}  // namespace im2col

// quantize.cpp
void quantize(const Tensor& x, double scale, Tensor& out);

// pool.cpp
void max_pool2d(const Tensor& x, const Window& window, Tensor& out, Tensor& index);
void max_pool2d_grad(const Tensor& dy, const Tensor& index, const Window& window, Tensor& dx);
void avg_pool2d(const Tensor& x, const Window& window, Tensor& out);
void avg_pool2d_grad(const Tensor& dy, const Window& window, Tensor& dx);
void adaptive_avg_pool2d(const Tensor& x, Tensor& out);
void adaptive_avg_pool2d_grad(const Tensor& dy, Tensor& dx);

// norm.cpp
void bias_grad(const Tensor& dy, Tensor& db);
void batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, double momentum,
                      double epsilon, const BatchNormTail& tail, const ChannelMoments& known,
                      Tensor& running_mean, Tensor& running_var, Tensor& out, Tensor& mean, Tensor& invstd,
                      Tensor& shift);
void batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                     const Tensor& running_var, double epsilon, const BatchNormTail& tail, Tensor& out);
void batch_norm_moments(const Tensor& x, Tensor& mean, Tensor& squares);
void batch_norm_grad_sums(const Tensor& dy, const BatchNormForward& forward, Tensor& dz, Tensor& dgamma,
                          Tensor& dbeta);
void batch_norm_grad_input(const Tensor& dy, const BatchNormForward& forward, const Tensor& dgamma,
                           const Tensor& dbeta, double count, Tensor& dx);
void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon, Tensor& out,
                Tensor& mean, Tensor& invstd);
void layer_norm_grad(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                     const Tensor& invstd, Tensor& dx, Tensor& dgamma, Tensor& dbeta);

// attention.cpp
void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
               Tensor& out, Tensor& log_sums);
void attention_grad(const Tensor& dout, const AttentionForward& forward, const AttentionOptions& options,
                    Tensor& dq, Tensor& dk, Tensor& dv);

}  // namespace brigade::cpu
