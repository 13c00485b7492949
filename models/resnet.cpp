// SPDX-License-Identifier: MIT
// models/resnet.cpp - construction and forward of residual networks.
#include "models/resnet.h"

#include "autograd/checkpoint.h"
#include "autograd/ops/conv.h"
#include "autograd/ops/shape_ops.h"
#include "nn/init.h"

namespace brigade::models {

namespace {

nn::Conv2dOptions conv_options(std::int64_t stride, std::int64_t padding) {
  return {.stride = stride, .padding = padding, .bias = false};  // The batch norm that follows has one.
}

nn::Conv2dOptions stem_options(Stem stem) {
  return stem == Stem::cifar ? conv_options(1, 1) : conv_options(2, 3);
}

}  // namespace

BasicBlock::BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
    : conv1_(in, out, 3, conv_options(stride, 1)),
      bn1_(out),
      conv2_(out, out, 3, conv_options(1, 1)),
      bn2_(out) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  register_module("conv2", conv2_);
  register_module("bn2", bn2_);
  if (stride == 1 && in == out) return;
  downsample_.emplace<nn::Conv2d>(in, out, 1, conv_options(stride, 0));
  downsample_.emplace<nn::BatchNorm2d>(out);
  register_module("downsample", downsample_);
}

Variable BasicBlock::forward(const Variable& x) {
  const nn::WithMoments y = bn2_.conv(conv2_, bn1_(bn1_.conv(conv1_, x), {.relu = true}));
  // After the main branch, so that backward, which goes the other way, is through with the shortcut's gradient early.
  const Variable shortcut = downsample_(x);
  return bn2_(y, {.relu = true, .residual = shortcut});
}

ResNet::ResNet(const ResNetOptions& options)
    : options_(options),
      conv1_(3, options.width, options.stem == Stem::cifar ? 3 : 7, stem_options(options.stem)),
      bn1_(options.width),
      fc_(8 * options.width, options.classes) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  std::int64_t in = options.width;
  for (std::size_t stage = 0; stage < layers_.size(); ++stage) {
    const std::int64_t out = options.width << stage;
    for (int block = 0; block < options.blocks[stage]; ++block) {
      // The first block of every stage but the first halves the image.
      layers_[stage].emplace<BasicBlock>(in, out, stage > 0 && block == 0 ? 2 : 1);
      in = out;
    }
    register_module(str("layer", stage + 1), layers_[stage]);
  }
  register_module("fc", fc_);

  for (const nn::NamedParameter& parameter : named_parameters())
    if (parameter.variable.dims() == 4)
      nn::kaiming_normal_(parameter.variable.value(), default_generator(), {.fan = nn::Fan::out});
}

Variable ResNet::forward(const Variable& x) {
  BRIGADE_CHECK(x.dims() == 4 && x.size(1) == 3, "resnet: x must be [N, 3, H, W]; got ", x.shape());
  Variable y = contiguous(cast(x, options_.precision), options_.format);
  y = bn1_(bn1_.conv(conv1_, y), {.relu = true});
  if (options_.stem == Stem::imagenet) y = max_pool2d(y, kStemPool);
  for (nn::Sequential& layer : layers_)
    for (int i = 0; i < layer.size(); ++i) {
      const auto block = [&module = layer[i]](const Variable& v) { return module(v); };
      y = options_.checkpoint_activations ? checkpoint(block, y) : block(y);
    }
  return cast(fc_(flatten(adaptive_avg_pool2d(y, 1, 1), 1)), DType::f32);
}

}  // namespace brigade::models
