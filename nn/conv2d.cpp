// SPDX-License-Identifier: MIT
// nn/conv2d.cpp - construction and forward of the convolution layer.
#include "nn/conv2d.h"

#include "nn/init.h"

namespace brigade::nn {

namespace {

Variable new_weight(std::int64_t in, std::int64_t out, Size2 kernel, std::int64_t groups) {
  BRIGADE_CHECK(in > 0 && out > 0 && kernel.h > 0 && kernel.w > 0, "Conv2d: sizes must be positive; got in ",
                in, ", out ", out, ", kernel ", kernel.h, " x ", kernel.w);
  BRIGADE_CHECK(groups > 0 && in % groups == 0 && out % groups == 0,
                "Conv2d: groups must divide the channels; got in ", in, ", out ", out, ", groups ", groups);
  return Variable::parameter(Tensor::empty({out, in / groups, kernel.h, kernel.w}));
}

}  // namespace

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, const Conv2dOptions& options)
    : weight(register_parameter("weight", new_weight(in, out, kernel, options.groups))),
      bias(options.bias ? register_parameter("bias", Variable::parameter(Tensor::empty({out}))) : Variable()),
      window_{.kernel = {kernel.h, kernel.w},
              .stride = {options.stride.h, options.stride.w},
              .padding = {options.padding.h, options.padding.w},
              .dilation = {options.dilation.h, options.dilation.w},
              .groups = options.groups} {
  BRIGADE_CHECK(window_.stride[0] > 0 && window_.stride[1] > 0 && window_.dilation[0] > 0 &&
                    window_.dilation[1] > 0 && window_.padding[0] >= 0 && window_.padding[1] >= 0,
                "Conv2d: stride and dilation must be positive, padding not negative");
  default_init_(weight.value(), bias.defined() ? bias.value() : Tensor(), default_generator());
}

Variable Conv2d::forward(const Variable& x, ChannelMoments* moments) {
  return conv2d(x, weight, bias, window_, moments);
}

}  // namespace brigade::nn
