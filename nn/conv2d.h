// SPDX-License-Identifier: MIT
// nn/conv2d.h - the convolution layer. Read before: nn/linear.h. Read next: nn/batch_norm.h.
#pragma once

#include "autograd/ops/conv.h"
#include "nn/module.h"
#include "nn/size2.h"

namespace brigade::nn {

/// `Conv2d(64, 128, 3, {.stride = 2, .padding = 1, .bias = false})`
struct Conv2dOptions {
  Size2 stride = 1;
  Size2 padding = 0;
  Size2 dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

/// x [N, in, H, W] -> [N, out, H', W'] in x's memory format; weight [out, in / groups, kH, kW], bias [out],
/// drawn from default_generator().
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, const Conv2dOptions& options = {});

  Variable forward(const Variable& x) override { return forward(x, nullptr); }
  /// The same, with the result's moments if `moments` is given and the kernel takes them along.
  Variable forward(const Variable& x, ChannelMoments* moments);
  using Module::operator();
  Variable operator()(const Variable& x, ChannelMoments* moments) {
    const TimedScope span(SpanKind::forward, layer());
    return forward(x, moments);
  }
  const Window& window() const { return window_; }

  const Variable weight;
  const Variable bias;  ///< Undefined without bias.

 private:
  Window window_;
};

}  // namespace brigade::nn
