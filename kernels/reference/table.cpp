// SPDX-License-Identifier: MIT
// kernels/reference/table.cpp - the table of naive loops.
#include "kernels/reference/reference.h"

namespace brigade {

const KernelTable& reference_kernels() {
  static constexpr KernelTable table{
      .fill = reference::fill,
      .copy = reference::copy,
      .unary = reference::unary,
      .binary = reference::binary,
      .binary_scalar = reference::binary_scalar,
      .where = reference::where,
      .random_uniform = reference::random_uniform,
      .random_normal = reference::random_normal,
      .dropout = reference::dropout,
      .reduce = reference::reduce,
      .argmax = reference::argmax,
      .sum_of_squares = reference::sum_of_squares,
      .computed_in = [](DType dtype) { return dtype; },
      .matmul = reference::matmul,
      .linear = reference::linear,
      .linear_grad_input = reference::linear_grad_input,
      .linear_grad_weight = reference::linear_grad_weight,
      .conv2d = reference::conv2d,
      .conv2d_with_moments = reference::conv2d_with_moments,
      .conv2d_grad_input = reference::conv2d_grad_input,
      .conv2d_grad_weight = reference::conv2d_grad_weight,
      .can_pack_conv2d = reference::can_pack_conv2d,
      .pack_conv2d = reference::pack_conv2d,
      .quantize = reference::quantize,
      .bias_grad = reference::bias_grad,
      .max_pool2d = reference::max_pool2d,
      .max_pool2d_grad = reference::max_pool2d_grad,
      .avg_pool2d = reference::avg_pool2d,
      .avg_pool2d_grad = reference::avg_pool2d_grad,
      .adaptive_avg_pool2d = reference::adaptive_avg_pool2d,
      .adaptive_avg_pool2d_grad = reference::adaptive_avg_pool2d_grad,
      .batch_norm_train = reference::batch_norm_train,
      .batch_norm_eval = reference::batch_norm_eval,
      .batch_norm_moments = reference::batch_norm_moments,
      .batch_norm_grad_sums = reference::batch_norm_grad_sums,
      .batch_norm_grad_input = reference::batch_norm_grad_input,
      .layer_norm = reference::layer_norm,
      .layer_norm_grad = reference::layer_norm_grad,
      .softmax = reference::softmax,
      .log_softmax = reference::log_softmax,
      .softmax_grad = reference::softmax_grad,
      .log_softmax_grad = reference::log_softmax_grad,
      .cross_entropy = reference::cross_entropy,
      .cross_entropy_grad = reference::cross_entropy_grad,
      .embedding = reference::embedding,
      .embedding_grad = reference::embedding_grad,
      .find_out_of_range = reference::find_out_of_range,
      .sgd = reference::sgd,
      .adamw = reference::adamw,
      .lerp = reference::lerp,
      .clip_factor = reference::clip_factor,
      .trust_ratio = reference::trust_ratio,
      .flag_non_finite = reference::flag_non_finite,
      .update_loss_scale = reference::update_loss_scale,
      .augment_images = reference::augment_images,
  };
  return table;
}

}  // namespace brigade
