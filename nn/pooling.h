// SPDX-License-Identifier: MIT
// nn/pooling.h - layers without parameters that make images smaller, and Flatten.
#pragma once

#include <optional>

#include "autograd/ops/conv.h"
#include "autograd/ops/shape_ops.h"
#include "nn/module.h"
#include "nn/size2.h"

namespace brigade::nn {

struct PoolOptions {
  std::optional<Size2> stride = {};  ///< The kernel size if absent, as in PyTorch.
  Size2 padding = 0;                 ///< At most half the kernel.
};

namespace detail {
inline Window pool_window(Size2 kernel, const PoolOptions& options) {
  const Size2 stride = options.stride.value_or(kernel), padding = options.padding;
  BRIGADE_CHECK(kernel.h > 0 && kernel.w > 0 && stride.h > 0 && stride.w > 0,
                "pooling: kernel and stride must be positive; got kernel ", kernel.h, " x ", kernel.w,
                ", stride ", stride.h, " x ", stride.w);
  // More padding would make windows that see nothing but padding.
  BRIGADE_CHECK(padding.h >= 0 && padding.w >= 0 && 2 * padding.h <= kernel.h && 2 * padding.w <= kernel.w,
                "pooling: padding must lie in [0, kernel / 2]; got padding ", padding.h, " x ", padding.w,
                ", kernel ", kernel.h, " x ", kernel.w);
  return {.kernel = {kernel.h, kernel.w}, .stride = {stride.h, stride.w}, .padding = {padding.h, padding.w}};
}
}  // namespace detail

/// Largest value of each window; padding never wins.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Size2 kernel, const PoolOptions& options = {})
      : window_(detail::pool_window(kernel, options)) {}
  Variable forward(const Variable& x) override { return max_pool2d(x, window_); }

 private:
  Window window_;
};

/// Mean of each window; padding counts as zeros.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Size2 kernel, const PoolOptions& options = {})
      : window_(detail::pool_window(kernel, options)) {}
  Variable forward(const Variable& x) override { return avg_pool2d(x, window_); }

 private:
  Window window_;
};

/// Mean over windows chosen so that the result is `out` large, whatever the input's size.
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2 out) : out_(out) {}
  Variable forward(const Variable& x) override { return adaptive_avg_pool2d(x, out_.h, out_.w); }

 private:
  Size2 out_;
};

/// [N, ..] -> [N, product of the rest]
class Flatten : public Module {
 public:
  Variable forward(const Variable& x) override { return flatten(x, 1); }
};

}  // namespace brigade::nn
