// SPDX-License-Identifier: MIT
// kernels/kernels.h - the kernel table: stateless maths on tensors, one table of function pointers a device.
// Every slot trusts its arguments: kernels/ops.h checks, allocates, and is what the rest of the code calls.
// A table is filled with designated initializers, so that a forgotten slot does not compile.
// Read before: core/tensor.h, kernels/parameters.h. Read next: kernels/ops.h.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor.h"
#include "kernels/parameters.h"

namespace brigade {

/// f64 [C] each: the mean of a channel, and the sum of squared deviations from it. Undefined: not known.
struct ChannelMoments {
  Tensor mean{}, squares{};
};

/// How a batch norm ends, in the pass that writes its result: y = relu(bn(x) + residual).
struct BatchNormTail {
  bool relu = false;
  Tensor residual{};  ///< x's shape and dtype; undefined: nothing is added.
};

/// What the gradient of a batch norm needs to know of its forward: xhat = (x - mean) invstd.
struct BatchNormForward {
  Tensor x, gamma, mean, invstd;
  /// If a ReLU followed and nothing was added before it: what batch_norm_train wrote. The ReLU was open where
  /// (x - mean) (gamma invstd) + shift > 0, the very arithmetic of forward, so that y need not be read again.
  Tensor shift{};
  Tensor y{};  ///< If something was added before the ReLU: the result. Open where y > 0.
};

/// What the gradient of attention needs to know of its forward.
struct AttentionForward {
  Tensor q, k, v, out, log_sums;
};

class PackedConv;  // kernels/packed_conv.h
struct PackedConvSpec;

inline constexpr std::int64_t kMaxHeadWidth = 128;

/// Notation: N batch, C channels, H W spatial; `w` is a weight, `d…` the gradient of the loss by "…".
/// Activations may be f32, f64, bf16 or f16; parameters and statistics are f32 (f64 beside f64
/// activations). A gradient of a parameter is written in the parameter's dtype. Outputs are allocated
/// by the caller and overwritten. 4-D activations may be contiguous or channels_last, and outputs
/// have the format they were given.
struct KernelTable {
  // Elementwise; any strides. Inputs are already expanded to out's shape.
  void (*fill)(Tensor& out, double value);
  void (*copy)(const Tensor& x, Tensor& out);  ///< Casts between any two dtypes.
  void (*unary)(Unary op, const Tensor& x, Tensor& out);
  void (*binary)(Binary op, const Tensor& a, const Tensor& b, Tensor& out);
  void (*binary_scalar)(Binary op, const Tensor& a, double b, Tensor& out);
  void (*where)(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out);
  /// y = (x[i] of sequence (seed, stream)) scaled: uniform in [low, high) or normal(mean, std). Dense `out`;
  /// element i in logical row-major order is uniform_at / normal_at (core/rng.h), whatever the strides.
  void (*random_uniform)(std::uint64_t seed, std::uint64_t stream, double low, double high, Tensor& out);
  void (*random_normal)(std::uint64_t seed, std::uint64_t stream, double mean, double std, Tensor& out);
  /// y = x * keep(i) / (1 - p), where keep(i) = uniform_at(seed, stream, i) >= p. Its own derivative in x.
  void (*dropout)(std::uint64_t seed, std::uint64_t stream, double p, const Tensor& x, Tensor& out);

  // Reductions. `out` has x's dims with size 1 where reduced. 16-bit inputs accumulate in f32.
  void (*reduce)(Reduction op, const Tensor& x, Tensor& out);
  void (*argmax)(const Tensor& x, int dim, Tensor& out);  ///< i64, first of equals; out has size 1 at dim.
  /// Sum of squares in double; fixed order, so the same for any number of threads.
  void (*sum_of_squares)(const Tensor& x, Tensor& sum);  ///< sum: one f64.

  /// The dtype in which products and convolutions of `dtype` are computed: another where the processor lacks it.
  DType (*computed_in)(DType dtype);
  // Matrix product. a [.., M, K], b [.., K, N], out [.., M, N]; equal batch dims (expanded), any strides.
  // beta 0 overwrites, beta 1 adds to out.
  void (*matmul)(const Tensor& a, const Tensor& b, double beta, Tensor& out);
  /// y = x wᵀ + bias, then the activation: x [R, I], w [O, I] in the parameter dtype, bias [O] or undefined, y [R, O].
  void (*linear)(const Tensor& x, const Tensor& w, const Tensor& bias, Activation then, Tensor& out);
  void (*linear_grad_input)(const Tensor& dy, const Tensor& w, Tensor& dx);
  void (*linear_grad_weight)(const Tensor& dy, const Tensor& x, Tensor& dw);  ///< dw in the parameter dtype.

  // Convolution: x [N, C, H, W], w [O, C / groups, kH, kW] contiguous (OIHW), bias [O] or undefined.
  void (*conv2d)(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out);
  /// The same, which also takes the moments of what it writes, a pass over memory less for the batch norm behind it.
  /// Leaves `moments` undefined where that is no faster, or where a mean is so large beside the deviations that they
  /// need a look of their own.
  void (*conv2d_with_moments)(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                              Tensor& out, ChannelMoments& moments);
  /// beta 0 overwrites dx, beta 1 adds to it.
  void (*conv2d_grad_input)(const Tensor& dy, const Tensor& w, const Window& window, double beta, Tensor& dx);
  void (*conv2d_grad_weight)(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw);
  /// For inference: the same weights for many calls. Whether this machine computes on activations of `dtype`.
  bool (*can_pack_conv2d)(DType dtype);
  std::unique_ptr<PackedConv> (*pack_conv2d)(const PackedConvSpec& spec);
  /// out = x / scale, rounded to nearest even, saturated: x f32, out u8 or i8, both dense in the same format.
  void (*quantize)(const Tensor& x, double scale, Tensor& out);
  /// Sum over every dim but 1 (channels) of dy, or over rows of a 2-D dy: the gradient of a bias [C].
  void (*bias_grad)(const Tensor& dy, Tensor& db);

  // Pooling. `index` i64 [N, C, oH, oW]: h * W + w of each maximum (first of equals).
  void (*max_pool2d)(const Tensor& x, const Window& window, Tensor& out, Tensor& index);
  /// `window` as it was in forward.
  void (*max_pool2d_grad)(const Tensor& dy, const Tensor& index, const Window& window, Tensor& dx);
  void (*avg_pool2d)(const Tensor& x, const Window& window, Tensor& out);  ///< Padding counts as zeros.
  void (*avg_pool2d_grad)(const Tensor& dy, const Window& window, Tensor& dx);
  /// Window of output i: [floor(i H / oH), ceil((i + 1) H / oH)), as in PyTorch.
  void (*adaptive_avg_pool2d)(const Tensor& x, Tensor& out);
  void (*adaptive_avg_pool2d_grad)(const Tensor& dy, Tensor& dx);

  // Normalisation. Batch norm of x [N, C, H, W] or [N, C] over all dims but 1; mean, invstd [C] are
  // statistics of the batch (biased variance), saved for backward. running_var tracks the unbiased variance.
  /// y = (x - mean) (gamma invstd) + shift, then the tail. shift [C] is beta, less what rounding the mean lost.
  /// `moments` are those of x if they are known.
  void (*batch_norm_train)(const Tensor& x, const Tensor& gamma, const Tensor& beta, double momentum,
                           double epsilon, const BatchNormTail& tail, const ChannelMoments& moments,
                           Tensor& running_mean, Tensor& running_var, Tensor& out, Tensor& mean,
                           Tensor& invstd, Tensor& shift);
  /// The same with given statistics: shift is beta, and invstd = 1 / sqrt(running_var + epsilon).
  void (*batch_norm_eval)(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                          const Tensor& running_mean, const Tensor& running_var, double epsilon,
                          const BatchNormTail& tail, Tensor& out);
  /// Mean and sum of squared deviations from it, f64 [C]; 0 without values. For a batch of which x is a share.
  void (*batch_norm_moments)(const Tensor& x, Tensor& mean, Tensor& squares);
  /// The gradient in two steps, so that the sums of several shares can be added in between. With dz the gradient
  /// of bn(x), which is dy where the ReLU was open (everywhere if there was none), else 0:
  ///   dbeta = sum(dz), dgamma = sum(dz xhat);  dx = gamma invstd (dz - dbeta / count - xhat dgamma / count)
  /// The first step writes `dz` if forward.y is given (it is the gradient of what was added, too), and may write
  /// it over dy; the second step then takes it for dy. Else `dz` is undefined. dx may lie over dy.
  void (*batch_norm_grad_sums)(const Tensor& dy, const BatchNormForward& forward, Tensor& dz, Tensor& dgamma,
                               Tensor& dbeta);
  void (*batch_norm_grad_input)(const Tensor& dy, const BatchNormForward& forward, const Tensor& dgamma,
                                const Tensor& dbeta, double count, Tensor& dx);
  /// Layer norm over the last dim, x [.., D]; mean, invstd [rows].
  void (*layer_norm)(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon, Tensor& out,
                     Tensor& mean, Tensor& invstd);
  void (*layer_norm_grad)(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                          const Tensor& invstd, Tensor& dx, Tensor& dgamma, Tensor& dbeta);

  // Classification. Softmax over the last dim; contiguous tensors.
  void (*softmax)(const Tensor& x, Tensor& out);
  void (*log_softmax)(const Tensor& x, Tensor& out);
  void (*softmax_grad)(const Tensor& dy, const Tensor& y, Tensor& dx);
  void (*log_softmax_grad)(const Tensor& dy, const Tensor& y, Tensor& dx);
  /// Mean loss over the rows whose label is not ignore_index (loss: one f32 or f64 element).
  /// `log_probs` [R, C] is kept for the gradient. Smoothed target: (1 - s) one_hot + s / C.
  /// Labels i64 [R] are in range or ignored; on a device one that is neither makes the loss a NaN, for who looks later.
  void (*cross_entropy)(const Tensor& logits, const Tensor& labels, double smoothing,
                        std::int64_t ignore_index, Tensor& loss, Tensor& log_probs);
  /// dloss: one f32 or f64 element.
  void (*cross_entropy_grad)(const Tensor& dloss, const Tensor& log_probs, const Tensor& labels,
                             double smoothing, std::int64_t ignore_index, Tensor& dlogits);

  // Attention: out = softmax(scale q kᵀ) v over keys, for each of H heads. q, out [N, H, T, D] and k, v [N, H, S, D]
  // have one dtype, D at most kMaxHeadWidth, rows of D dense and any other strides; causal: T = S.
  // No memory of T x S is ever taken: forward leaves the logarithm of each row's sum of exponentials, log_sums
  // [N, H, T] in the parameter dtype, contiguous, and backward computes the probabilities again (Dao et al.,
  // "FlashAttention", 2022).
  void (*attention)(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                    Tensor& out, Tensor& log_sums);
  /// dq, dk, dv: as q, k, v, with strides of their own.
  void (*attention_grad)(const Tensor& dout, const AttentionForward& forward, const AttentionOptions& options,
                         Tensor& dq, Tensor& dk, Tensor& dv);

  // Embedding: w [V, D], ids i64 [..], out [.., D]. The gradient adds rows of equal id. On a device an id out of range
  // has a row of NaNs, and no gradient.
  void (*embedding)(const Tensor& w, const Tensor& ids, Tensor& out);
  void (*embedding_grad)(const Tensor& dy, const Tensor& ids, Tensor& dw);
  /// The first flat position of `ids` whose value lies outside [0, limit) and is not `allowed`, and that value; or
  /// {-1, 0}. found: i64 [2].
  void (*find_out_of_range)(const Tensor& ids, std::int64_t limit, std::int64_t allowed, Tensor& found);

  // Optimizers: one pass over flat memory (1-D, contiguous, equal sizes); formulas in functor/optimizer.h.
  void (*sgd)(const SgdConstants& k, const Tensor& grad, Tensor& momentum, Tensor& param);
  void (*adamw)(const AdamwConstants& k, const Tensor& grad, Tensor& m, Tensor& v, Tensor& param);
  /// average += weight (target - average)
  void (*lerp)(const Tensor& target, double weight, Tensor& average);
  /// factor (one f32) = min(1, max_norm / (norm + 1e-6)) with norm² = squares (one f64); 1 if that is not finite.
  void (*clip_factor)(double max_norm, const Tensor& squares, Tensor& factor);
  /// ratio (one f32) = trust |p| / (|g| + weight_decay |p|), from the squares of both norms (f64 each); 1 if one is 0.
  void (*trust_ratio)(const TrustConstants& k, const Tensor& value_squares, const Tensor& grad_squares,
                      Tensor& ratio);
  /// flags[index] = 1 if a value of x is infinite or a NaN; else flags (i32, 1-D) stays. Of a device, without waiting.
  void (*flag_non_finite)(const Tensor& x, Tensor& flags, std::int64_t index);
  /// After a step: found, scale, good_steps have one element each (i32, f32, i32). Found: scale *= backoff, good_steps
  /// = 0. Else ++good_steps; at `interval` scale *= growth, unless that were infinite, and good_steps = 0.
  void (*update_loss_scale)(const LossScaleConstants& k, const Tensor& found, Tensor& scale,
                            Tensor& good_steps);

  /// What data/augment.h does to images, but for the noise: images u8 [N, C, H, W] contiguous; placements i32 [N, 5]
  /// (dy, dx, flip, cutout_y, cutout_x of data::Placement); values f32 [C, 256], what each byte becomes (outside of the
  /// image lie bytes 0); cutout: the side of a square that becomes 0. Out [N, C, H, W] floating.
  void (*augment_images)(const Tensor& images, const Tensor& placements, const Tensor& values,
                         std::int64_t cutout, Tensor& out);
};

/// The table of `device`. Throws Error if it is not compiled in.
const KernelTable& kernels(Device device);

/// The naive loops of every slot, for tests and for reading: kernels/reference. CPU tensors only.
const KernelTable& reference_kernels();

}  // namespace brigade
