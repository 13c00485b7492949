// SPDX-License-Identifier: MIT
// kernels/ops.h - checked, allocating functions over the kernel table: what autograd, nn and dist call.
// Every function throws Error before any work when shapes or dtypes do not fit. Names, shapes and formulas of
// the structured ones are documented at their slot in kernels/kernels.h. Read next: autograd/ops/*.h.
#pragma once

#include <span>
#include <vector>

#include "core/rng.h"
#include "kernels/kernels.h"

namespace brigade::ops {

// ---- Construction and copies ------------------------------------------------------------------------------
Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
Tensor arange(std::int64_t count, DType dtype = DType::i64, Device device = {});
/// Uniform in [low, high) / normal, drawn from `generator`'s next stream: the same numbers on every device.
Tensor rand(const Shape& shape, Generator& generator, double low = 0, double high = 1,
            DType dtype = DType::f32, Device device = {});
Tensor randn(const Shape& shape, Generator& generator, double mean = 0, double std = 1,
             DType dtype = DType::f32, Device device = {});
void fill_(Tensor& out, double value);
void uniform_(Tensor& out, Generator& generator, double low, double high);
void normal_(Tensor& out, Generator& generator, double mean, double std);
/// Copies (and casts) values of equal shape into `out`, whatever the strides and the devices.
void copy_(Tensor& out, const Tensor& x);
/// A dense copy in `format`.
Tensor clone(const Tensor& x, MemoryFormat format = MemoryFormat::contiguous);
/// `x` itself if it is dense in `format`, else a dense copy.
Tensor contiguous(const Tensor& x, MemoryFormat format = MemoryFormat::contiguous);
/// `x` itself if it has `dtype`, else a converted copy in x's memory format.
Tensor cast(const Tensor& x, DType dtype);
/// A view where strides allow it, else a copy.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Dense uninitialised tensor with x's shape, dtype, device and memory format.
Tensor empty_like(const Tensor& x);
Tensor concat(std::span<const Tensor> xs, std::int64_t dim);
Tensor stack(std::span<const Tensor> xs, std::int64_t dim);
/// Adds before[i] / after[i] elements of `value` on both sides of dim i.
Tensor pad(const Tensor& x, const Dims& before, const Dims& after, double value = 0);

// ---- Elementwise (broadcasting; equal dtypes) -------------------------------------------------------------
Tensor unary(Unary op, const Tensor& x);
Tensor binary(Binary op, const Tensor& a, const Tensor& b);
Tensor binary(Binary op, const Tensor& a, double b);
/// out = op(out, b), in place; b broadcasts to out.
void binary_(Binary op, Tensor& out, const Tensor& b);
void binary_(Binary op, Tensor& out, double b);
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream);

inline Tensor add(const Tensor& a, const Tensor& b) { return binary(Binary::add, a, b); }
inline Tensor sub(const Tensor& a, const Tensor& b) { return binary(Binary::sub, a, b); }
inline Tensor mul(const Tensor& a, const Tensor& b) { return binary(Binary::mul, a, b); }
inline Tensor div(const Tensor& a, const Tensor& b) { return binary(Binary::div, a, b); }
inline Tensor mul(const Tensor& a, double b) { return binary(Binary::mul, a, b); }
inline void add_(Tensor& out, const Tensor& b) { binary_(Binary::add, out, b); }
inline void mul_(Tensor& out, double b) { binary_(Binary::mul, out, b); }

// ---- Reductions -------------------------------------------------------------------------------------------
enum class KeepDims : bool { no, yes };
/// Over `dims`; an empty list means all.
Tensor reduce(Reduction op, const Tensor& x, const Dims& dims = {}, KeepDims keep = KeepDims::no);
Tensor argmax(const Tensor& x, std::int64_t dim, KeepDims keep = KeepDims::no);
/// Sums a gradient of a broadcast result back to the shape of one operand.
Tensor sum_to(const Tensor& x, const Shape& shape);
double sum_of_squares(const Tensor& x);
/// Into one f64 of x's device, without waiting for it.
void sum_of_squares(const Tensor& x, Tensor& sum);

// ---- Matrix products --------------------------------------------------------------------------------------
/// The dtype in which products and convolutions of `dtype` are computed on `device`: f32 where it lacks bf16, say.
DType computed_in(DType dtype, Device device = {});
/// [.., M, K] x [.., K, N] with broadcasting batch dims.
Tensor matmul(const Tensor& a, const Tensor& b);
/// x [.., I]. With Activation::relu the bits of unary(Unary::relu, linear(x, w, bias)), in that result's memory.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation then = Activation::none);
Tensor linear_grad_input(const Tensor& dy, const Tensor& w);
void linear_grad_weight(const Tensor& dy, const Tensor& x, Tensor& dw);
void bias_grad(const Tensor& dy, Tensor& db);

// ---- Convolution, pooling (results have x's memory format) ------------------------------------------------
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window);
struct ConvWithMoments {
  Tensor out;
  ChannelMoments moments;  ///< Of out, where they came along; else undefined.
};
ConvWithMoments conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias,
                                    const Window& window);
Tensor conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, const Shape& x_shape);
/// Adds it to `dx` [N, C, H, W], a dense tensor of dy's dtype: cheaper than to add afterwards.
void add_conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw);
/// For inference; see kernels/packed_conv.h. Throws Error, too, if this processor does not compute on spec.in.
std::unique_ptr<PackedConv> pack_conv2d(const PackedConvSpec& spec);
/// x [N, C, H, W] -> [N, O, H', W'], channels_last. The residual, if `conv` adds one, is overwritten: the result lies
/// in its memory.
Tensor packed_conv2d(const PackedConv& conv, const Tensor& x, const Tensor& residual = {});
/// x / scale as u8 or i8, rounded to nearest even and saturated, dense in `format`.
Tensor quantize(const Tensor& x, double scale, DType dtype, MemoryFormat format = MemoryFormat::contiguous);
struct MaxPooled {
  Tensor out, index;
};
MaxPooled max_pool2d(const Tensor& x, const Window& window);
Tensor max_pool2d_grad(const Tensor& dy, const Tensor& index, const Window& window, const Shape& x_shape);
Tensor avg_pool2d(const Tensor& x, const Window& window);
Tensor avg_pool2d_grad(const Tensor& dy, const Window& window, const Shape& x_shape);
Tensor adaptive_avg_pool2d(const Tensor& x, std::int64_t out_h, std::int64_t out_w);
Tensor adaptive_avg_pool2d_grad(const Tensor& dy, const Shape& x_shape);

// ---- Normalisation ----------------------------------------------------------------------------------------
struct Normalized {
  Tensor out, mean, invstd;
};
struct BatchNormalized {
  Tensor out, mean, invstd, shift;
};
/// Updates running_mean and running_var (may both be undefined: not tracked). `moments`: of x, if known.
BatchNormalized batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, double momentum,
                                 double epsilon, Tensor& running_mean, Tensor& running_var,
                                 const BatchNormTail& tail = {}, const ChannelMoments& moments = {});
Tensor batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                       const Tensor& running_var, double epsilon, const BatchNormTail& tail = {});
ChannelMoments batch_norm_moments(const Tensor& x);
Normalized layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon);
/// The gradient in two steps: the sums, and dx from sums over `count` values a channel, of which x may be a part.
/// `dz` is defined if forward.y is, and may be dy itself; it then takes dy's place in the second step. dx may be dy.
void batch_norm_grad_sums(const Tensor& dy, const BatchNormForward& forward, Tensor& dz, Tensor& dgamma,
                          Tensor& dbeta);
void batch_norm_grad_input(const Tensor& dy, const BatchNormForward& forward, const Tensor& dgamma,
                           const Tensor& dbeta, double count, Tensor& dx);
/// Returns dx; writes dgamma and dbeta.
Tensor layer_norm_grad(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                       const Tensor& invstd, Tensor& dgamma, Tensor& dbeta);

// ---- Classification, attention, embedding -----------------------------------------------------------------
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
Tensor softmax_grad(const Tensor& dy, const Tensor& y);
Tensor log_softmax_grad(const Tensor& dy, const Tensor& y);
struct CrossEntropy {
  Tensor loss, log_probs;
};
/// Throws Error naming sample, label and class count if a label is outside [0, C) and not ignore_index. (Under
/// kernels/late_checks.h a device tells of it later; so does embedding().)
CrossEntropy cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing = 0,
                           std::int64_t ignore_index = -100);
/// dloss: one element, f32 or f64, on the device of the rest; `dtype` is that of the logits.
Tensor cross_entropy_grad(const Tensor& dloss, const CrossEntropy& forward, const Tensor& labels,
                          double smoothing, std::int64_t ignore_index, DType dtype);
Tensor cross_entropy_grad(double dloss, const CrossEntropy& forward, const Tensor& labels, double smoothing,
                          std::int64_t ignore_index, DType dtype);
struct Attended {
  Tensor out, log_sums;
};
/// `out` lies in memory as [N, T, H, D], so that a model goes on without a copy.
Attended attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);
/// Writes dq, dk, dv, whose rows are dense.
void attention_grad(const Tensor& dout, const AttentionForward& forward, const AttentionOptions& options,
                    Tensor& dq, Tensor& dk, Tensor& dv);
Tensor embedding(const Tensor& w, const Tensor& ids);
void embedding_grad(const Tensor& dy, const Tensor& ids, Tensor& dw);

// ---- What a device finds and does by itself, without the host waiting (see the slots) -----------------------
void flag_non_finite(const Tensor& x, Tensor& flags, std::int64_t index);
void clip_factor(double max_norm, const Tensor& squares, Tensor& factor);
void trust_ratio(const TrustConstants& k, const Tensor& value_squares, const Tensor& grad_squares,
                 Tensor& ratio);
void update_loss_scale(const LossScaleConstants& k, const Tensor& found, Tensor& scale, Tensor& good_steps);
/// Images u8 [N, C, H, W] to floats of `dtype`, on their device.
Tensor augment_images(const Tensor& images, const Tensor& placements, const Tensor& values,
                      std::int64_t cutout, DType dtype = DType::f32,
                      MemoryFormat format = MemoryFormat::channels_last);

}  // namespace brigade::ops
