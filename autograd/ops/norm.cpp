// SPDX-License-Identifier: MIT
// autograd/ops/norm.cpp - derivatives of batch and layer normalisation. gamma and
// beta may be left out (1 and 0).
#include "autograd/ops/norm.h"

#include <algorithm>
#include <array>
#include <utility>

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

// "batch_norm", or the name with what follows it.
std::string_view op_name(const BatchNormThen& then) {
  if (!then.residual.defined()) return then.relu ? "batch_norm_relu" : "batch_norm";
  return then.relu ? "batch_norm_add_relu" : "batch_norm_add";
}

BatchNormTail tail_of(const BatchNormThen& then) {
  return {.relu = then.relu, .residual = value_or_undefined(then.residual)};
}

// What backward needs. With a ReLU, where it was open: forward's shift tells it from x, unless something was added to
// bn(x); then the result y tells it, which the next operation usually keeps anyway.
struct Saved {
  SavedTensor x, gamma;
  Tensor mean, invstd, shift;
  SavedTensor y;
  bool adds_before_relu;

  Saved(const Variable& input, const Tensor& scale, const Tensor& saved_mean, const Tensor& saved_invstd,
        const Tensor& saved_shift, const Tensor& result, const BatchNormThen& then)
      : x(input.value()),
        gamma(scale),
        mean(saved_mean),
        invstd(saved_invstd),
        shift(then.relu && !then.residual.defined() ? saved_shift : Tensor()),
        y(then.relu && then.residual.defined() ? result : Tensor()),
        adds_before_relu(then.relu && then.residual.defined()) {}

  BatchNormForward load(const Gradients& out) const {
    return {out.load(x), out.load(gamma), mean, invstd, shift, out.load(y)};
  }
};

// Gives the gradients of x, gamma, beta and the residual. `of_all` turns this share's dgamma and dbeta into those of
// the whole batch, of `count` values a channel.
template <class OfAll>
void give_batch_norm_gradients(const Saved& saved, double count, const OfAll& of_all, const Tensor& dy,
                               Gradients& out) {
  const BatchNormForward forward = saved.load(out);
  Tensor dgamma = destination_or_scratch(out, 1, forward.gamma);
  Tensor dbeta = destination_or_scratch(out, 2, forward.gamma);
  // dz = dy where the ReLU was open, the gradient of both bn(x) and the residual.
  Tensor dz = saved.adds_before_relu ? over_or_empty(dy, forward.x) : Tensor();
  ops::batch_norm_grad_sums(dy, forward, dz, dgamma, dbeta);
  const bool residual_wanted = out.wanted(3);
  if (out.wanted(0)) {
    const Tensor& by_bn = dz.defined() ? dz : dy;
    // In place where nobody needs what lies there any more.
    Tensor dx = residual_wanted || dz.defined() ? ops::empty_like(forward.x) : over_or_empty(dy, forward.x);
    const auto [dgamma_of_all, dbeta_of_all] = of_all(dgamma, dbeta);
    ops::batch_norm_grad_input(by_bn, forward, dgamma_of_all, dbeta_of_all, count, dx);
    out.give(0, dx);
  }
  if (out.wanted(1)) out.give(1, dgamma);
  if (out.wanted(2)) out.give(2, dbeta);
  if (residual_wanted) out.give(3, dz.defined() ? dz : dy);
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

// With n values a channel, x̂ = (x - mean) invstd, z = gamma x̂ + beta and y = z, or relu(z), or relu(z + residual):
//   dz = dy, or dy where y > 0 else 0;   dresidual = dz
//   dbeta = Σ dz,   dgamma = Σ dz x̂,   dx = gamma invstd (dz - dbeta / n - x̂ dgamma / n)
// (the last two terms because mean and variance depend on x too).
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon, const BatchNormThen& then,
                          const ChannelMoments& moments) {
  const std::int64_t channels = x.size(1);
  const Tensor scale = value_or(gamma, 1, channels, x.value()),
               shift = value_or(beta, 0, channels, x.value());
  // A checkpoint's second run sees the same batch again: its statistics have been counted already.
  if (is_recomputing()) running = RunningStats();
  const ops::BatchNormalized result = ops::batch_norm_train(
      x.value(), scale, shift, momentum, epsilon, running.mean, running.var, tail_of(then), moments);
  const Saved saved(x, scale, result.mean, result.invstd, result.shift, result.out, then);
  const auto count = static_cast<double>(x.numel() / channels);
  return record(op_name(then), result.out, {x, gamma, beta, then.residual},
                [saved, count](const Tensor& dy, Gradients& out) {
                  const auto same = [](const Tensor& dgamma, const Tensor& dbeta) {
                    return std::pair(dgamma, dbeta);
                  };
                  give_batch_norm_gradients(saved, count, same, dy, out);
                });
}

// Shares r with n_r values of mean m_r and squared deviations q_r a channel, N of all (Chan, Golub and LeVeque, 1979):
//   mean = Σ n_r m_r / N,   var = Σ (q_r + n_r (m_r - mean)²) / N
// in f64: these are a few numbers, and a mean that is large beside the deviations would cancel. Backward is that of
// batch_norm_train with dbeta, dgamma and n of all shares in dx; the parameters' own gradients stay this share's.
Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          RunningStats running, double momentum, double epsilon,
                          const CombineStatistics& combine, const BatchNormThen& then) {
  const auto total = [combine](const Tensor& a, const Tensor& b) {
    const std::array<Tensor, 2> both{a, b};
    return combine(Variable(ops::concat(both, 0))).value();
  };
  const std::int64_t channels = x.size(1);
  const DType dtype = parameter_dtype(x.dtype());
  const Tensor scale = value_or(gamma, 1, channels, x.value()),
               shift = value_or(beta, 0, channels, x.value());

  const ChannelMoments own = ops::batch_norm_moments(x.value());
  const auto n = static_cast<double>(x.numel() / std::max<std::int64_t>(channels, 1));
  const Tensor sums = total(ops::mul(own.mean, n), ops::full({1}, n, DType::f64, x.value().device()));
  const double count = sums.slice(0, channels, channels + 1).item();
  BRIGADE_CHECK(count > 1, "batch_norm: training needs more than one value per channel; got ", count,
                " in the whole batch, x ", x.shape(), " here");
  const Tensor mean = ops::mul(sums.slice(0, 0, channels), 1 / count);
  const Tensor away = ops::sub(own.mean, mean);
  const Tensor squares = ops::add(own.squares, ops::mul(ops::mul(away, away), n));
  const Tensor var = ops::mul(combine(Variable(squares)).value(), 1 / count);

  // As batch_norm_eval will compute it: backward has to find the same ReLUs open.
  const Tensor rounded_var = ops::cast(var, dtype);
  const Tensor invstd = ops::cast(
      ops::unary(Unary::rsqrt, ops::binary(Binary::add, ops::cast(rounded_var, DType::f64), epsilon)), dtype);
  const Tensor centre = ops::cast(mean, dtype);
  // What rounding the mean lost belongs to the shift: beside a tiny deviation it is not small.
  const Tensor slope = ops::mul(ops::cast(invstd, DType::f64), ops::cast(scale, DType::f64));
  const Tensor lost = ops::mul(ops::sub(mean, ops::cast(centre, DType::f64)), slope);
  const Tensor shifted = ops::sub(shift, ops::cast(lost, dtype));
  const Tensor y =
      ops::batch_norm_eval(x.value(), scale, shifted, centre, rounded_var, epsilon, tail_of(then));
  if (running.mean.defined() && !is_recomputing()) {
    track(running.mean, mean, momentum);
    track(running.var, ops::mul(var, count / (count - 1)), momentum);
  }
  const Saved saved(x, scale, centre, invstd, shifted, y, then);
  return record(op_name(then), y, {x, gamma, beta, then.residual},
                [saved, total, count](const Tensor& dy, Gradients& out) {
                  const auto of_all = [&](const Tensor& dgamma, const Tensor& dbeta) {
                    const Tensor both = total(dgamma, dbeta);
                    const std::int64_t c = dgamma.numel();
                    return std::pair(both.slice(0, 0, c), both.slice(0, c, 2 * c));
                  };
                  give_batch_norm_gradients(saved, count, of_all, dy, out);
                });
}

// Mean and variance are constants here, x̂ = (x - running mean) invstd and dz as in training:
//   dx = gamma invstd dz,   dgamma = Σ dz x̂,   dbeta = Σ dz,   dresidual = dz
Variable batch_norm_eval(const Variable& x, const Variable& gamma, const Variable& beta,
                         const RunningStats& running, double epsilon, const BatchNormThen& then) {
  BRIGADE_CHECK(
      running.mean.defined() && running.var.defined(),
      "batch_norm_eval: needs running statistics; got none; normalise with the batch's (batch_norm_train)");
  const std::int64_t channels = x.size(1);
  const Tensor scale = value_or(gamma, 1, channels, x.value()),
               shift = value_or(beta, 0, channels, x.value());
  const Tensor y =
      ops::batch_norm_eval(x.value(), scale, shift, running.mean, running.var, epsilon, tail_of(then));
  return record("batch_norm_eval", y, {x, gamma, beta, then.residual},
                [x_kept = save_for(gamma, x.value()), scale_kept = SavedTensor(scale),
                 mean_kept = SavedTensor(running.mean), var_kept = SavedTensor(running.var),
                 y_kept = then.relu ? SavedTensor(y) : SavedTensor(), epsilon,
                 dtype = x.dtype()](const Tensor& dy, Gradients& out) {
                  // In the statistics' precision; not a training path, so plain operations will do.
                  const Tensor gamma_value = out.load(scale_kept), mean = out.load(mean_kept);
                  const Tensor result = out.load(y_kept);
                  const Tensor dz = result.defined() ? ops::binary(Binary::relu_grad, dy, result) : dy;
                  const Tensor var = ops::binary(Binary::add, out.load(var_kept), epsilon);
                  const Tensor invstd = ops::unary(Unary::rsqrt, var);
                  const Tensor wide = ops::cast(dz, mean.dtype());
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
                  if (out.wanted(3)) out.give(3, dz);
                });
}

// As batch_norm_train, with sums over the last dim for dx and over rows for dgamma and dbeta (g = gamma dy):
//   dx = invstd (g - mean(g) - x̂ mean(g x̂)),   dgamma = Σ dy x̂,   dbeta = Σ dy
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, double epsilon) {
  const std::int64_t width = x.size(-1);
  const Tensor scale = value_or(gamma, 1, width, x.value()), shift = value_or(beta, 0, width, x.value());
  const ops::Normalized result = ops::layer_norm(x.value(), scale, shift, epsilon);
  return record("layer_norm", result.out, {x, gamma, beta},
                [x_kept = SavedTensor(x.value()), scale_kept = SavedTensor(scale), mean = result.mean,
                 invstd = result.invstd](const Tensor& dy, Gradients& out) {
                  const Tensor weight = out.load(scale_kept);
                  Tensor dgamma = destination_or_scratch(out, 1, weight);
                  Tensor dbeta = destination_or_scratch(out, 2, weight);
                  const Tensor dx =
                      ops::layer_norm_grad(dy, out.load(x_kept), weight, mean, invstd, dgamma, dbeta);
                  if (out.wanted(0)) out.give(0, dx);
                  if (out.wanted(1)) out.give(1, dgamma);
                  if (out.wanted(2)) out.give(2, dbeta);
                });
}

}  // namespace brigade
