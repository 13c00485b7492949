// SPDX-License-Identifier: MIT
// nn/batch_norm.cpp - construction and forward of batch normalisation.
#include "nn/batch_norm.h"

#include "autograd/checkpoint.h"
#include "kernels/ops.h"

namespace brigade::nn {

BatchNorm2d::BatchNorm2d(std::int64_t channels, const BatchNormOptions& options)
    : weight(register_parameter("weight", Variable::parameter(ops::full({channels}, 1)))),
      bias(register_parameter("bias", Variable::parameter(Tensor::zeros({channels})))),
      options_(options),
      running_{.mean = Tensor::zeros({channels}), .var = ops::full({channels}, 1)},
      num_batches_tracked_(Tensor::zeros({}, DType::i64)) {
  register_buffer("running_mean", running_.mean);
  register_buffer("running_var", running_.var);
  register_buffer("num_batches_tracked", num_batches_tracked_);
}

Variable BatchNorm2d::forward(const Variable& x, const BatchNormThen& then, const ChannelMoments& moments) {
  BRIGADE_CHECK(x.dims() == 4 && x.size(1) == weight.numel(), "BatchNorm2d: x must be [N, ", weight.numel(),
                ", H, W]; got ", x.shape());
  if (!training()) return batch_norm_eval(x, weight, bias, running_, options_.epsilon, then);

  BRIGADE_CHECK(combine_ || x.numel() > x.size(1),
                "BatchNorm2d: training needs more than one value per channel; got x ", x.shape());
  const Variable y =
      combine_
          ? batch_norm_train(x, weight, bias, running_, options_.momentum, options_.epsilon, combine_, then)
          : batch_norm_train(x, weight, bias, running_, options_.momentum, options_.epsilon, then, moments);
  // A checkpoint's second run sees the same batch again: it must not count twice.
  if (!is_recomputing()) ops::binary_(Binary::add, num_batches_tracked_, 1);
  return y;
}

WithMoments BatchNorm2d::conv(Conv2d& conv, const Variable& x) const {
  if (!training() || combine_) return {conv(x), {}};
  WithMoments result;
  result.out = conv(x, &result.moments);
  return result;
}

int set_statistics_combiner(Module& module, const CombineStatistics& combine) {
  int count = 0;
  module.for_each_module([&](Module& m) {
    auto* layer = dynamic_cast<BatchNorm2d*>(&m);
    if (layer == nullptr) return;
    layer->set_statistics_combiner(combine);
    ++count;
  });
  return count;
}

}  // namespace brigade::nn
