// SPDX-License-Identifier: MIT
// kernels/cuda/table.cpp - the kernels of a GPU.
#include "kernels/cuda/slots.h"

namespace brigade {

const KernelTable& cuda_kernels();  // For kernels/backends.cpp.

const KernelTable& cuda_kernels() {
  static constexpr KernelTable table{
      .fill = cuda::fill,
      .copy = cuda::copy,
      .unary = cuda::unary,
      .binary = cuda::binary,
      .binary_scalar = cuda::binary_scalar,
      .where = cuda::where,
      .random_uniform = cuda::random_uniform,
      .random_normal = cuda::random_normal,
      .dropout = cuda::dropout,
      .reduce = cuda::reduce,
      .argmax = cuda::argmax,
      .sum_of_squares = cuda::sum_of_squares,
      .computed_in = cuda::computed_in,
      .matmul = cuda::matmul,
      .linear = cuda::linear,
      .linear_grad_input = cuda::linear_grad_input,
      .linear_grad_weight = cuda::linear_grad_weight,
      .conv2d = cuda::conv2d,
      .conv2d_with_moments = cuda::conv2d_with_moments,
      .conv2d_grad_input = cuda::conv2d_grad_input,
      .conv2d_grad_weight = cuda::conv2d_grad_weight,
      .can_pack_conv2d = cuda::can_pack_conv2d,
      .pack_conv2d = cuda::pack_conv2d,
      .quantize = cuda::quantize,
      .bias_grad = cuda::bias_grad,
      .max_pool2d = cuda::max_pool2d,
      .max_pool2d_grad = cuda::max_pool2d_grad,
      .avg_pool2d = cuda::avg_pool2d,
      .avg_pool2d_grad = cuda::avg_pool2d_grad,
      .adaptive_avg_pool2d = cuda::adaptive_avg_pool2d,
      .adaptive_avg_pool2d_grad = cuda::adaptive_avg_pool2d_grad,
      .batch_norm_train = cuda::batch_norm_train,
      .batch_norm_eval = cuda::batch_norm_eval,
      .batch_norm_moments = cuda::batch_norm_moments,
      .batch_norm_grad_sums = cuda::batch_norm_grad_sums,
      .batch_norm_grad_input = cuda::batch_norm_grad_input,
      .layer_norm = cuda::layer_norm,
      .layer_norm_grad = cuda::layer_norm_grad,
      .softmax = cuda::softmax,
      .log_softmax = cuda::log_softmax,
      .softmax_grad = cuda::softmax_grad,
      .log_softmax_grad = cuda::log_softmax_grad,
      .cross_entropy = cuda::cross_entropy,
      .cross_entropy_grad = cuda::cross_entropy_grad,
      .attention = cuda::attention,
      .attention_grad = cuda::attention_grad,
      .embedding = cuda::embedding,
      .embedding_grad = cuda::embedding_grad,
      .find_out_of_range = cuda::find_out_of_range,
      .sgd = cuda::sgd,
      .adamw = cuda::adamw,
      .lerp = cuda::lerp,
      .clip_factor = cuda::clip_factor,
      .trust_ratio = cuda::trust_ratio,
      .flag_non_finite = cuda::flag_non_finite,
      .update_loss_scale = cuda::update_loss_scale,
      .augment_images = cuda::augment_images,
  };
  return table;
}

}  // namespace brigade
