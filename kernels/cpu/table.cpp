// SPDX-License-Identifier: MIT
// kernels/cpu/table.cpp - the kernels of the CPU.
#include "kernels/cpu/basic.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/structured.h"
#include "kernels/reference/reference.h"

namespace brigade {

const KernelTable& cpu_kernels() {
  static constexpr KernelTable table{
      .fill = cpu::fill,
      .copy = cpu::copy,
      .unary = cpu::unary,
      .binary = cpu::binary,
      .binary_scalar = cpu::binary_scalar,
      .where = cpu::where,
      .random_uniform = cpu::random_uniform,
      .random_normal = cpu::random_normal,
      .dropout = cpu::dropout,
      .reduce = cpu::reduce,
      .argmax = cpu::argmax,
      .sum_of_squares = cpu::sum_of_squares,
      .computed_in = cpu::computed_in,
      .matmul = cpu::matmul,
      .linear = cpu::linear,
      .linear_grad_input = cpu::linear_grad_input,
      .linear_grad_weight = cpu::linear_grad_weight,
      .conv2d = cpu::conv2d,
      .conv2d_with_moments = cpu::conv2d_with_moments,
      .conv2d_grad_input = cpu::conv2d_grad_input,
      .conv2d_grad_weight = cpu::conv2d_grad_weight,
      .can_pack_conv2d = onednn::can_pack_conv2d,
      .pack_conv2d = onednn::pack_conv2d,
      .quantize = cpu::quantize,
      .bias_grad = cpu::bias_grad,
      .max_pool2d = cpu::max_pool2d,
      .max_pool2d_grad = cpu::max_pool2d_grad,
      .avg_pool2d = cpu::avg_pool2d,
      .avg_pool2d_grad = cpu::avg_pool2d_grad,
      .adaptive_avg_pool2d = cpu::adaptive_avg_pool2d,
      .adaptive_avg_pool2d_grad = cpu::adaptive_avg_pool2d_grad,
      .batch_norm_train = cpu::batch_norm_train,
      .batch_norm_eval = cpu::batch_norm_eval,
      .batch_norm_moments = cpu::batch_norm_moments,
      .batch_norm_grad_sums = cpu::batch_norm_grad_sums,
      .batch_norm_grad_input = cpu::batch_norm_grad_input,
      .layer_norm = cpu::layer_norm,
      .layer_norm_grad = cpu::layer_norm_grad,
      .softmax = cpu::softmax,
      .log_softmax = cpu::log_softmax,
      .softmax_grad = cpu::softmax_grad,
      .log_softmax_grad = cpu::log_softmax_grad,
      .cross_entropy = cpu::cross_entropy,
      .cross_entropy_grad = cpu::cross_entropy_grad,
      .attention = cpu::attention,
      .attention_grad = cpu::attention_grad,
      .embedding = cpu::embedding,
      .embedding_grad = cpu::embedding_grad,
      .find_out_of_range = cpu::find_out_of_range,
      .sgd = cpu::sgd,
      .adamw = cpu::adamw,
      .lerp = cpu::lerp,
      .clip_factor = cpu::clip_factor,
      .trust_ratio = cpu::trust_ratio,
      .flag_non_finite = cpu::flag_non_finite,
      .update_loss_scale = cpu::update_loss_scale,
      // On a CPU the loader's threads do this while they gather a batch: data/augment.h.
      .augment_images = reference::augment_images,
  };
  return table;
}

}  // namespace brigade
