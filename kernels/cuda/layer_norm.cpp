// SPDX-License-Identifier: MIT
// kernels/cuda/layer_norm.cpp - layer norm over dense rows.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {

void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon, Tensor& out,
                Tensor& mean, Tensor& invstd) {
  BRIGADE_CHECK(is_floating(x.dtype()), "layer_norm: needs a floating dtype; got ", x.dtype());
  launched(device::layer_norm(x.dtype(), x.raw(), gamma.raw(), beta.raw(), epsilon, out.raw(), mean.raw(),
                              invstd.raw(), rows_of(x), stream_of(x)),
           "layer_norm");
}

void layer_norm_grad(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                     const Tensor& invstd, Tensor& dx, Tensor& dgamma, Tensor& dbeta) {
  BRIGADE_CHECK(is_floating(x.dtype()), "layer_norm_grad: needs a floating dtype; got ", x.dtype());
  const device::Rows rows = rows_of(x);
  const Tensor partial =
      Tensor::empty({2 * device::layer_norm_slices(rows) * rows.width}, gamma.dtype(), x.device());
  launched(device::layer_norm_grad(x.dtype(), dy.raw(), x.raw(), gamma.raw(), mean.raw(), invstd.raw(),
                                   dx.raw(), dgamma.raw(), dbeta.raw(), partial.raw(), rows, stream_of(x)),
           "layer_norm_grad");
}

}  // namespace brigade::cuda
