// SPDX-License-Identifier: MIT
// autograd/ops/norm.cpp - derivatives of batch and layer normalisation. gamma and
// beta may be left out (1 and 0).
#include "autograd/ops/norm.h"

#include <algorithm>
#include <array>

#include "autograd/checkpoint.h"
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

// tracked = (1 - momentum) tracked + momentum batch, in place; `batch` is f64.
void track(Tensor& tracked, const Tensor& batch, double momentum) {
  const Tensor before = ops::cast(tracked, DType::f64);
  ops::copy_(tracked, ops::add(ops::mul(before, 1 - momentum), ops::mul(batch, momentum)));
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

// Shares r with n_r values of mean m_r and squared deviations q_r a channel, N of all (Chan, Golub and LeVeque, 1979):
//   mean = Σ n_r m_r / N,   var = Σ (q_r + n_r (m_r - mean)²) / N
// in f64: these are a few numbers, and a mean that is large beside the deviations would cancel. Backward is that of
// batch_norm_train with dbeta, dgamma and n of all shares in dx; the parameters' own gradients stay this share's.
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon,
                          const CombineStatistics& combine) {
  const auto total = [combine](const Tensor& a, const Tensor& b) {
    const std::array<Tensor, 2> both{a, b};
    return combine(Variable(ops::concat(both, 0))).value();
  };
  const std::int64_t channels = x.size(1);
  const DType dtype = parameter_dtype(x.dtype());
  const Tensor scale = value_or(gamma, 1, channels, x.value()),
               shift = value_or(beta, 0, channels, x.value());

  const ops::Moments own = ops::batch_norm_moments(x.value());
  const auto n = static_cast<double>(x.numel() / std::max<std::int64_t>(channels, 1));
  const Tensor sums = total(ops::mul(own.mean, n), ops::full({1}, n, DType::f64, x.value().device()));
  const double count = sums.slice(0, channels, channels + 1).item();
  BRIGADE_CHECK(count > 1, "batch_norm: training needs more than one value per channel; got ", count,
                " in the whole batch, x ", x.shape(), " here");
  const Tensor mean = ops::mul(sums.slice(0, 0, channels), 1 / count);
  const Tensor away = ops::sub(own.mean, mean);
  const Tensor squares = ops::add(own.squares, ops::mul(ops::mul(away, away), n));
  const Tensor var = ops::mul(combine(Variable(squares)).value(), 1 / count);

  const Tensor invstd = ops::unary(Unary::rsqrt, ops::binary(Binary::add, var, epsilon));
  const Tensor centre = ops::cast(mean, dtype);
  // What rounding the mean lost belongs to the shift: beside a tiny deviation it is not small.
  const Tensor lost =
      ops::mul(ops::mul(ops::sub(mean, ops::cast(centre, DType::f64)), invstd), ops::cast(scale, DType::f64));
  const Tensor y = ops::batch_norm_eval(x.value(), scale, ops::sub(shift, ops::cast(lost, dtype)), centre,
                                        ops::cast(var, dtype), epsilon);
  if (running.mean.defined() && !is_recomputing()) {
    track(running.mean, mean, momentum);
    track(running.var, ops::mul(var, count / (count - 1)), momentum);
  }
  const Saved saved{SavedTensor(x.value()), SavedTensor(scale), centre, ops::cast(invstd, dtype)};
  return record("batch_norm", y, {x, gamma, beta}, [saved, total, count](const Tensor& dy, Gradients& out) {
    const Tensor input = out.load(saved.x), weight = out.load(saved.gamma);
    Tensor dgamma = destination_or_scratch(out, 1, weight);
    Tensor dbeta = destination_or_scratch(out, 2, weight);
    ops::batch_norm_grad_sums(dy, input, saved.mean, saved.invstd, dgamma, dbeta);
    if (out.wanted(0)) {
      const Tensor of_all = total(dgamma, dbeta);
      const std::int64_t c = weight.numel();
      out.give(0, ops::batch_norm_grad_input(dy, input, weight, saved.mean, saved.invstd,
                                             of_all.slice(0, 0, c), of_all.slice(0, c, 2 * c), count));
    }
    if (out.wanted(1)) out.give(1, dgamma);
    if (out.wanted(2)) out.give(2, dbeta);
  });
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
