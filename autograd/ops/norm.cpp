// SPDX-License-Identifier: MIT
// autograd/ops/norm.cpp - derivatives of batch and layer normalisation. gamma and
// beta may be left out (1 and 0).
#include "autograd/ops/norm.h"

#include <algorithm>
#include <array>

#include "autograd/checkpoint.h"
#include "autograd/ops/arithmetic.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

// The dtype of parameters and statistics beside activations of `dtype`: f32, or f64 for f64.
DType parameter_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// gamma or beta, or the constant that stands for one left out. `size` entries.
Tensor value_or(const Variable& v, double value, std::int64_t size, const Tensor& x) {
  return v.defined() ? v.value() : ops::full({size}, value, parameter_dtype(x.dtype()), x.device());
}

// The kernels write both parameter gradients in any case: into scratch memory where nobody wants one.
Tensor destination_or_scratch(Gradients& out, int input, const Tensor& like) {
  return out.wanted(input) ? out.destination(input) : ops::empty_like(like);
}

// What both norms keep, and how both give: they differ in the kernel only.
struct Saved {
  SavedTensor x, gamma;
  Tensor mean, invstd;
};
using NormGrad = Tensor (*)(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                            const Tensor& invstd, Tensor& dgamma, Tensor& dbeta);

void give_norm_gradients(NormGrad grad, const Saved& saved, const Tensor& dy, Gradients& out) {
  const Tensor gamma = out.load(saved.gamma);
  Tensor dgamma = destination_or_scratch(out, 1, gamma);
  Tensor dbeta = destination_or_scratch(out, 2, gamma);
  const Tensor dx = grad(dy, out.load(saved.x), gamma, saved.mean, saved.invstd, dgamma, dbeta);
  if (out.wanted(0)) out.give(0, dx);
  if (out.wanted(1)) out.give(1, dgamma);
  if (out.wanted(2)) out.give(2, dbeta);
}

// A vector [C] shaped to broadcast over dim 1 of x ([C] for [N, C], [C, 1, 1] for [N, C, H, W]).
Tensor per_channel(const Tensor& vector, int dims) {
  return dims == 4 ? ops::reshape(vector, {vector.numel(), 1, 1}) : vector;
}
Variable per_channel(const Variable& vector, int dims) {
  return dims == 4 ? reshape(vector, {vector.numel(), 1, 1}) : vector;
}

// tracked = (1 - momentum) tracked + momentum batch, in place.
void track(Tensor& tracked, const Tensor& batch, double momentum) {
  ops::mul_(tracked, 1 - momentum);
  ops::add_(tracked, ops::cast(ops::mul(batch, momentum), tracked.dtype()));
}

}  // namespace

// With n values a channel, x̂ = (x - mean) invstd and y = gamma x̂ + beta:
//   dbeta = Σ dy,   dgamma = Σ dy x̂,   dx = gamma invstd (dy - dbeta / n - x̂ dgamma / n)
// (the last two terms because mean and variance depend on x too).
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon) {
  const std::int64_t channels = x.size(1);
  const Tensor scale = value_or(gamma, 1, channels, x.value()),
               shift = value_or(beta, 0, channels, x.value());
  // A checkpoint's second run sees the same batch again: its statistics have been counted already.
  if (is_recomputing()) running = RunningStats();
  const ops::Normalized result =
      ops::batch_norm_train(x.value(), scale, shift, momentum, epsilon, running.mean, running.var);
  const Saved saved{SavedTensor(x.value()), SavedTensor(scale), result.mean, result.invstd};
  return record("batch_norm", result.out, {x, gamma, beta}, [saved](const Tensor& dy, Gradients& out) {
    give_norm_gradients(ops::batch_norm_grad, saved, dy, out);
  });
}

// The sums of x alone would cancel in the variance, so that they only give a centre k, the same for all, from which the
// deviations d = x - k are summed:
//   k = Σ x / N,   δ = Σ d / N,   mean = k + δ,   var = Σ d² / N - δ²,   y = gamma (d - δ) / sqrt(var + epsilon) + beta
// δ is what rounding took from k; without it a mean that is large beside the deviations would be off. The result does
// not depend on k, so that k counts as a constant in backward, and only Σ d and Σ d² carry gradients.
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon,
                          const CombineStatistics& combine) {
  BRIGADE_CHECK(x.dims() == 2 || x.dims() == 4, "batch_norm: x must be [N, C] or [N, C, H, W]; got ",
                x.shape());
  const std::int64_t channels = x.size(1);
  const Dims others = x.dims() == 4 ? Dims{0, 2, 3} : Dims{0};
  const Variable wide = cast(x, parameter_dtype(x.dtype()));

  const Tensor mine = ops::full({1}, static_cast<double>(x.numel() / std::max<std::int64_t>(channels, 1)),
                                wide.dtype(), x.value().device());
  const std::array<Tensor, 2> sum_and_count{ops::reduce(Reduction::sum, wide.value(), others), mine};
  const Tensor total = combine(ops::concat(sum_and_count, 0)).value();
  const Tensor count = total.slice(0, channels, channels + 1);
  BRIGADE_CHECK(count.item() > 1, "batch_norm: training needs more than one value per channel; got ",
                count.item(), " in the whole batch, x ", x.shape(), " here");
  const Tensor centre = ops::div(total.slice(0, 0, channels), count);

  const Variable deviation = wide - per_channel(centre, x.dims());
  const Variable first = sum(deviation, others);
  const Variable second = sum(deviation * deviation, others);
  const Variable moments = combine(concat({first, second}, 0)) / Variable(count);
  const Variable offset = slice(moments, 0, 0, channels);
  const Variable variance = slice(moments, 0, channels, 2 * channels) - offset * offset;

  Variable scale = pow(variance + epsilon, -0.5);
  if (gamma.defined()) scale = scale * gamma;
  Variable y = (deviation - per_channel(offset, x.dims())) * per_channel(scale, x.dims());
  if (beta.defined()) y = y + per_channel(beta, x.dims());

  if (running.mean.defined() && !is_recomputing()) {
    const double n = count.item();
    track(running.mean, ops::add(centre, offset.value()), momentum);
    track(running.var, ops::mul(variance.value(), n / (n - 1)), momentum);
  }
  return cast(y, x.dtype());
}

// Mean and variance are constants here, x̂ = (x - running mean) invstd:
//   dx = gamma invstd dy,   dgamma = Σ dy x̂,   dbeta = Σ dy
Variable batch_norm_eval(const Variable& x, const Variable& gamma, const Variable& beta,
                         const RunningStats& running, double epsilon) {
  BRIGADE_CHECK(
      running.mean.defined() && running.var.defined(),
      "batch_norm_eval: needs running statistics; got none; normalise with the batch's (batch_norm_train)");
  const std::int64_t channels = x.size(1);
  const Tensor scale = value_or(gamma, 1, channels, x.value()),
               shift = value_or(beta, 0, channels, x.value());
  const Tensor y = ops::batch_norm_eval(x.value(), scale, shift, running.mean, running.var, epsilon);
  return record("batch_norm_eval", y, {x, gamma, beta},
                [x_kept = save_for(gamma, x.value()), scale_kept = SavedTensor(scale),
                 mean_kept = SavedTensor(running.mean), var_kept = SavedTensor(running.var), epsilon,
                 dtype = x.dtype()](const Tensor& dy, Gradients& out) {
                  // In the statistics' precision; not a training path, so plain operations will do.
                  const Tensor gamma_value = out.load(scale_kept), mean = out.load(mean_kept);
                  const Tensor var = ops::binary(Binary::add, out.load(var_kept), epsilon);
                  const Tensor invstd = ops::unary(Unary::rsqrt, var);
                  const Tensor wide = ops::cast(dy, mean.dtype());
                  if (out.wanted(0)) {
                    const Tensor slope = per_channel(ops::mul(gamma_value, invstd), dy.dims());
                    out.give(0, ops::cast(ops::mul(wide, slope), dtype));
                  }
                  if (out.wanted(1)) {
                    const Tensor centred =
                        ops::sub(ops::cast(out.load(x_kept), mean.dtype()), per_channel(mean, dy.dims()));
                    const Tensor normalised = ops::mul(centred, per_channel(invstd, dy.dims()));
                    Tensor dgamma = out.destination(1);
                    ops::bias_grad(ops::mul(wide, normalised), dgamma);
                    out.give(1, dgamma);
                  }
                  if (out.wanted(2)) {
                    Tensor dbeta = out.destination(2);
                    ops::bias_grad(wide, dbeta);
                    out.give(2, dbeta);
                  }
                });
}

// As batch_norm_train, with sums over the last dim for dx and over rows for dgamma and dbeta (g = gamma dy):
//   dx = invstd (g - mean(g) - x̂ mean(g x̂)),   dgamma = Σ dy x̂,   dbeta = Σ dy
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, double epsilon) {
  const std::int64_t width = x.size(-1);
  const Tensor scale = value_or(gamma, 1, width, x.value()), shift = value_or(beta, 0, width, x.value());
  const ops::Normalized result = ops::layer_norm(x.value(), scale, shift, epsilon);
  const Saved saved{SavedTensor(x.value()), SavedTensor(scale), result.mean, result.invstd};
  return record("layer_norm", result.out, {x, gamma, beta}, [saved](const Tensor& dy, Gradients& out) {
    give_norm_gradients(ops::layer_norm_grad, saved, dy, out);
  });
}

}  // namespace brigade
