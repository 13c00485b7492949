// SPDX-License-Identifier: MIT
// autograd/ops/conv.h - differentiable convolution and pooling; shapes at the slots of kernels/kernels.h.
#pragma once

#include "autograd/variable.h"
#include "kernels/kernels.h"

namespace brigade {

/// window.kernel is taken from w. bias may be undefined. `moments`, if given, become those of the result for the
/// batch norm behind it, where the kernel takes them along; else they stay undefined.
Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, Window window,
                ChannelMoments* moments = nullptr);
Variable max_pool2d(const Variable& x, const Window& window);
Variable avg_pool2d(const Variable& x, const Window& window);
Variable adaptive_avg_pool2d(const Variable& x, std::int64_t out_h, std::int64_t out_w);

}  // namespace brigade
