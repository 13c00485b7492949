// SPDX-License-Identifier: MIT
// kernels/cuda/batch_norm.cpp - the batch norm slots on a GPU, by kernels of our own; why not cuDNN's is said in
// kernels/cuda/device/batch_norm.h. Sums are f32 over a handful of values and double from there on, always added in the
// same order.
#include "kernels/cuda/device/batch_norm.h"

#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"
#include "kernels/ops.h"

namespace brigade::cuda {

namespace {

// Of a tensor that is dense in either format.
device::ChannelLayout layout(const Tensor& t) {
  return {.images = t.size(0),
          .channels = t.size(1),
          .pixels = t.dims() == 4 ? t.size(2) * t.size(3) : 1,
          .rows = t.dims() == 2 || t.is_contiguous(MemoryFormat::channels_last)};
}

// `t` dense in the layout of the dense tensor `like`; undefined stays so.
Tensor as_dense_as(const Tensor& t, const Tensor& like) {
  if (!t.defined()) return t;
  const bool rows = like.dims() == 4 && like.is_contiguous(MemoryFormat::channels_last);
  return ops::contiguous(t, rows ? MemoryFormat::channels_last : MemoryFormat::contiguous);
}

void* data(const Tensor& t) { return t.defined() ? t.raw() : nullptr; }

// Two rows of doubles for each piece, as scratch memory; gone when the caller's scope ends, which the stream allows.
Tensor scratch(const device::ChannelLayout& l, Device device) {
  return Tensor::empty({2, device::channel_pieces(l) * l.channels}, DType::f64, device);
}

device::MomentPieces pieces_in(const Tensor& memory, const device::ChannelLayout& l) {
  return {.mean = memory.select(0, 0).data<double>(),
          .squares = memory.select(0, 1).data<double>(),
          .pieces = device::channel_pieces(l),
          .piece = device::channel_piece(l)};
}

device::BatchNormGrad gradient(const Tensor& dy, const Tensor& x, const Tensor& y,
                               const BatchNormForward& f) {
  return {.dy = dy.raw(),
          .x = x.raw(),
          .gamma = f.gamma.raw(),
          .mean = f.mean.raw(),
          .invstd = f.invstd.raw(),
          .shift = data(f.shift),
          .y = data(y)};
}

}  // namespace

void batch_norm_moments(const Tensor& x, Tensor& mean, Tensor& squares) {
  const device::ChannelLayout l = layout(x);
  const cudaStream_t stream = stream_of(x);
  const Tensor memory = scratch(l, x.device());
  const device::MomentPieces pieces = pieces_in(memory, l);
  launched(device::channel_moments(x.dtype(), x.raw(), l, pieces, stream), "channel_moments");
  launched(device::merge_moments(pieces, l, mean.data<double>(), squares.data<double>(), stream),
           "merge_moments");
}

void batch_norm_train(const Tensor& x, const Tensor& gamma, const Tensor& beta, double momentum,
                      double epsilon, const BatchNormTail& tail, const ChannelMoments& known,
                      Tensor& running_mean, Tensor& running_var, Tensor& out, Tensor& mean, Tensor& invstd,
                      Tensor& shift) {
  const device::ChannelLayout l = layout(out);
  const cudaStream_t stream = stream_of(x);
  const Tensor input = as_dense_as(x, out), added = as_dense_as(tail.residual, out);
  Tensor memory;
  device::MomentPieces pieces{.pieces = 1, .piece = l.count()};
  if (known.mean.defined()) {
    pieces.mean = known.mean.data<double>();
    pieces.squares = known.squares.data<double>();
  } else {
    memory = scratch(l, x.device());
    pieces = pieces_in(memory, l);
    launched(device::channel_moments(x.dtype(), input.raw(), l, pieces, stream), "channel_moments");
  }
  const device::BatchNormStatistics statistics{.gamma = gamma.raw(),
                                               .beta = beta.raw(),
                                               .momentum = momentum,
                                               .epsilon = epsilon,
                                               .running_mean = data(running_mean),
                                               .running_var = data(running_var),
                                               .mean = mean.raw(),
                                               .invstd = invstd.raw(),
                                               .shift = shift.raw()};
  launched(device::batch_norm_statistics(x.dtype(), pieces, l, statistics, stream), "batch_norm_statistics");
  const device::BatchNormApply apply{.x = input.raw(),
                                     .gamma = gamma.raw(),
                                     .mean = mean.raw(),
                                     .invstd = invstd.raw(),
                                     .shift = shift.raw(),
                                     .residual = data(added),
                                     .relu = tail.relu,
                                     .y = out.raw()};
  launched(device::batch_norm_apply(x.dtype(), apply, l, stream), "batch_norm_apply");
}

void batch_norm_eval(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                     const Tensor& running_var, double epsilon, const BatchNormTail& tail, Tensor& out) {
  const device::ChannelLayout l = layout(out);
  const cudaStream_t stream = stream_of(x);
  const Tensor input = as_dense_as(x, out), added = as_dense_as(tail.residual, out);
  const Tensor invstd = Tensor::empty(gamma.shape(), gamma.dtype(), x.device());
  launched(device::inverse_deviation(x.dtype(), running_var.raw(), epsilon, invstd.raw(), l.channels, stream),
           "inverse_deviation");
  const device::BatchNormApply apply{.x = input.raw(),
                                     .gamma = gamma.raw(),
                                     .mean = running_mean.raw(),
                                     .invstd = invstd.raw(),
                                     .shift = beta.raw(),
                                     .residual = data(added),
                                     .relu = tail.relu,
                                     .y = out.raw()};
  launched(device::batch_norm_apply(x.dtype(), apply, l, stream), "batch_norm_apply");
}

void batch_norm_grad_sums(const Tensor& dy, const BatchNormForward& forward, Tensor& dz, Tensor& dgamma,
                          Tensor& dbeta) {
  const Tensor& x = forward.x;
  const device::ChannelLayout l = layout(x);
  const Tensor incoming = as_dense_as(dy, x), y = as_dense_as(forward.y, x), partial = scratch(l, x.device());
  launched(
      device::batch_norm_grad_sums(x.dtype(), gradient(incoming, x, y, forward), l, partial.data<double>(),
                                   data(dz), dgamma.raw(), dbeta.raw(), stream_of(x)),
      "batch_norm_grad_sums");
}

void batch_norm_grad_input(const Tensor& dy, const BatchNormForward& forward, const Tensor& dgamma,
                           const Tensor& dbeta, double count, Tensor& dx) {
  const Tensor x = as_dense_as(forward.x, dx), incoming = as_dense_as(dy, dx);
  launched(device::batch_norm_grad_input(dx.dtype(), gradient(incoming, x, forward.y, forward), layout(dx),
                                         dgamma.raw(), dbeta.raw(), count, dx.raw(), stream_of(dx)),
           "batch_norm_grad_input");
}

}  // namespace brigade::cuda
