// SPDX-License-Identifier: MIT
// nn/inference_net.cpp - calibration, quantisation of weights, and the loop over steps.
#include "nn/inference_net.h"

#include <algorithm>
#include <cmath>

#include "core/span.h"
#include "kernels/ops.h"

namespace brigade::nn {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

void check(const FoldedNet& net) {
  BRIGADE_CHECK(
      !net.steps.empty() && net.steps.front().is_convolution() && net.weight.defined(),
      "InferenceNet: needs a network that begins with a convolution and was finished with a linear layer");
  for (int i = 0; i + 1 < net.values(); ++i) {
    const FoldedStep& step = net.steps[at(i)];
    BRIGADE_CHECK(
        step.input >= 0 && step.input <= i && step.residual <= i && step.residual != step.input,
        "InferenceNet: a step reads earlier values, and as residual another one than as input; got input ",
        step.input, ", residual ", step.residual, " for step ", i);
  }
}

// The step that reads each value last; -1: none.
std::vector<int> last_readers(const FoldedNet& net) {
  std::vector<int> last(at(net.values()), -1);
  for (int i = 0; i + 1 < net.values(); ++i) {
    last[at(net.steps[at(i)].input)] = i;
    if (net.steps[at(i)].residual >= 0) last[at(net.steps[at(i)].residual)] = i;
  }
  return last;
}

std::vector<DType> all(const FoldedNet& net, DType dtype) {
  BRIGADE_CHECK(dtype == DType::f32 || dtype == DType::bf16,
                "InferenceNet: computes in f32 or bf16, and in int8 with limits from calibrate(); got ",
                dtype);
  check(net);
  return std::vector<DType>(at(net.values()), dtype);
}

// u8 where no value is negative.
std::vector<DType> bytes(const FoldedNet& net) {
  check(net);
  std::vector<DType> out{DType::i8};
  for (const FoldedStep& step : net.steps)
    out.push_back(step.is_convolution() ? (step.relu ? DType::u8 : DType::i8) : out[at(step.input)]);
  return out;
}

std::vector<double> scales_for(const FoldedNet& net, const ValueLimits& limits) {
  BRIGADE_CHECK(static_cast<int>(limits.size()) == net.values(),
                "InferenceNet: limits must be those of this network; got ",
                static_cast<std::int64_t>(limits.size()), " for ", net.values(), " values");
  const std::vector<DType> dtypes = bytes(net);
  std::vector<double> scales;
  for (int v = 0; v < net.values(); ++v) {
    BRIGADE_CHECK(limits[at(v)] > 0 && std::isfinite(limits[at(v)]),
                  "InferenceNet: limits must be positive; got ", limits[at(v)], " for value ", v);
    // Pooling passes units on.
    const bool pooled = v > 0 && !net.steps[at(v - 1)].is_convolution();
    scales.push_back(pooled ? scales[at(net.steps[at(v - 1)].input)]
                            : limits[at(v)] / (dtypes[at(v)] == DType::u8 ? 255 : 127));
  }
  return scales;
}

// Weights [O, ..] as i8 and what a unit of each output channel is worth. -128 is not used: it has no opposite.
struct ChannelWeights {
  Tensor weight, scale;
};
ChannelWeights quantize_weights(const Tensor& weight) {
  const std::int64_t channels = weight.size(0), count = weight.numel() / channels;
  const Tensor dense = ops::contiguous(weight);
  ChannelWeights out{Tensor::empty(weight.shape(), DType::i8), Tensor::empty({channels})};
  for (std::int64_t o = 0; o < channels; ++o) {
    const float* from = dense.data<float>() + o * count;
    std::int8_t* to = out.weight.data<std::int8_t>() + o * count;
    float largest = 0;
    for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(from[i]));
    BRIGADE_CHECK(std::isfinite(largest), "InferenceNet: weights must be finite; got ", largest, " in ",
                  weight);
    const float scale = largest > 0 ? largest / 127 : 1;  // A channel of zeros may have any.
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<std::int8_t>(std::nearbyint(from[i] / scale));
    out.scale.data<float>()[o] = scale;
  }
  return out;
}

}  // namespace

ValueLimits calibrate(const FoldedNet& net, std::span<const Tensor> batches,
                      const CalibrationOptions& options) {
  BRIGADE_CHECK(!batches.empty(), "calibrate: needs at least one batch of images; got none");
  BRIGADE_CHECK(options.percentile > 0 && options.percentile <= 100,
                "calibrate: percentile must lie in (0, 100]; got ", options.percentile);
  const InferenceNet exact(net);
  ValueLimits limits(at(net.values()), 0.0);
  std::vector<float> magnitudes;
  for (const Tensor& images : batches) {
    BRIGADE_CHECK(images.numel() > 0, "calibrate: a batch needs images; got ", images);
    exact.run(images, [&](int value, const Tensor& tensor) {
      const float* values = tensor.data<float>();  // Dense, in whatever order.
      magnitudes.assign(values, values + tensor.numel());
      for (float& m : magnitudes) {
        m = std::abs(m);
        BRIGADE_CHECK(std::isfinite(m), "calibrate: values must be finite; got ", m, " in value ", value,
                      " of shape ", tensor.shape());
      }
      const auto rank = static_cast<std::ptrdiff_t>(
                            std::ceil(options.percentile / 100 * static_cast<double>(magnitudes.size()))) -
                        1;
      const auto place = magnitudes.begin() + std::max<std::ptrdiff_t>(rank, 0);
      std::nth_element(magnitudes.begin(), place, magnitudes.end());
      limits[at(value)] = std::max(limits[at(value)], static_cast<double>(*place));
    });
  }
  // A value that is always zero has no scale of its own; any serves.
  for (double& limit : limits) limit = limit > 0 ? limit : 1;
  return limits;
}

InferenceNet::InferenceNet(const FoldedNet& net, DType precision)
    : InferenceNet(net, all(net, precision), std::vector<double>(at(net.values()), 1.0)) {}

InferenceNet::InferenceNet(const FoldedNet& net, const ValueLimits& limits)
    : InferenceNet(net, bytes(net), scales_for(net, limits)) {}

InferenceNet::InferenceNet(const FoldedNet& net, std::vector<DType> dtypes, std::vector<double> scales)
    : dtypes_(std::move(dtypes)), scales_(std::move(scales)), bias_(net.bias) {
  channels_ = net.steps.front().weight.size(1) * net.steps.front().window.groups;
  const std::vector<int> last = last_readers(net);
  for (int i = 0; i + 1 < net.values(); ++i) {
    const FoldedStep& from = net.steps[at(i)];
    Step step{.input = from.input,
              .residual = from.residual,
              .residual_ends = false,
              .ended = {},
              .pool = from.window,
              .conv = nullptr};
    for (int v = 0; v <= i; ++v)
      if (last[at(v)] == i) step.ended.push_back(v);
    // Images are the caller's.
    step.residual_ends = from.residual > 0 && last[at(from.residual)] == i;
    if (from.is_convolution()) step.conv = ops::pack_conv2d(spec_of(from, i + 1));
    steps_.push_back(std::move(step));
  }
  weight_ = ops::mul(net.weight, scales_.back());
}

// Of the convolution that makes `value`.
PackedConvSpec InferenceNet::spec_of(const FoldedStep& step, int value) const {
  const double in_unit = scales_[at(step.input)], out_unit = scales_[at(value)];
  PackedConvSpec spec{.weight = step.weight,
                      .bias = step.bias,
                      .window = step.window,
                      .in = dtypes_[at(step.input)],
                      .out = dtypes_[at(value)],
                      .relu = step.relu};
  if (step.residual >= 0)
    spec.residual = {.dtype = dtypes_[at(step.residual)], .scale = scales_[at(step.residual)] / out_unit};
  if (is_floating(spec.in)) return spec;
  const ChannelWeights quantized = quantize_weights(step.weight);
  spec.weight = quantized.weight;
  spec.scale = ops::mul(quantized.scale, in_unit / out_unit);
  spec.bias = ops::mul(step.bias, 1 / out_unit);
  return spec;
}

Tensor InferenceNet::prepare(const Tensor& images) const {
  BRIGADE_CHECK(
      images.defined() && images.dims() == 4 && images.size(1) == channels_ && is_floating(images.dtype()),
      "InferenceNet: images must be floating [N, ", channels_, ", H, W]; got ", images);
  if (is_floating(dtypes_.front()))
    return ops::contiguous(ops::cast(images, dtypes_.front()), MemoryFormat::channels_last);
  return ops::quantize(images, scales_.front(), dtypes_.front(), MemoryFormat::channels_last);
}

Tensor InferenceNet::run(const Tensor& images, const Observer& observe) const {
  std::vector<Tensor> values(steps_.size() + 1);
  values[0] = prepare(images);
  if (observe) observe(0, values[0]);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const Tensor& x = values[at(step.input)];
    Tensor& y = values[i + 1];
    if (step.conv) {
      Tensor residual = step.residual < 0 ? Tensor() : values[at(step.residual)];
      if (residual.defined() && !step.residual_ends)
        residual = ops::clone(residual, MemoryFormat::channels_last);
      y = ops::packed_conv2d(*step.conv, x, residual);
    } else {
      // bf16 holds every byte exactly, and the largest of them is one of them.
      const DType dtype = is_floating(x.dtype()) ? x.dtype() : DType::bf16;
      y = ops::cast(ops::max_pool2d(ops::cast(x, dtype), step.pool).out, x.dtype());
    }
    if (observe) observe(static_cast<int>(i) + 1, y);
    for (const int ended : step.ended) values[at(ended)] = Tensor();
  }
  const Tensor pooled = ops::adaptive_avg_pool2d(ops::cast(values.back(), DType::f32), 1, 1);
  return ops::linear(pooled.view({pooled.size(0), pooled.size(1)}), weight_, bias_);
}

}  // namespace brigade::nn
