// SPDX-License-Identifier: MIT
// autograd/ops/conv.cpp - derivatives of convolution and pooling. Gradients have dy's memory format.
#include "autograd/ops/conv.h"

#include <utility>

#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {

// y = x ⋆ w + b   =>   dx = dy ⋆ᵀ w (each output's share goes back to the pixels it saw),
//                      dw = sum over images and positions of dy times the pixels under the window,
//                      db = sum over images and positions of dy
Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, Window window,
                ChannelMoments* moments) {
  BRIGADE_CHECK(x.dims() == 4 && w.dims() == 4,
                "conv2d: x must be [N, C, H, W] and weight [O, C, kH, kW]; got x ", x.shape(), " and weight ",
                w.shape());
  window.kernel[0] = w.size(2);
  window.kernel[1] = w.size(3);
  const auto forward = [&] {
    if (moments == nullptr) return ops::conv2d(x.value(), w.value(), value_or_undefined(bias), window);
    ops::ConvWithMoments result =
        ops::conv2d_with_moments(x.value(), w.value(), value_or_undefined(bias), window);
    *moments = result.moments;
    return result.out;
  };
  const Tensor y = forward();
  return record("conv2d", y, {x, w, bias},
                [x_kept = save_for(w, x.value()), w_kept = save_for(x, w.value()), x_shape = x.shape(),
                 window](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) {
                    const Tensor weight = out.load(w_kept);
                    // What came through a residual block's shortcut is there first: a pass over memory less.
                    Tensor dx = out.take_sum(0);
                    if (dx.defined())
                      ops::add_conv2d_grad_input(dy, weight, window, dx);
                    else
                      dx = ops::conv2d_grad_input(dy, weight, window, x_shape);
                    out.give(0, std::move(dx));
                  }
                  if (out.wanted(1)) {
                    Tensor dw = out.destination(1);
                    ops::conv2d_grad_weight(dy, out.load(x_kept), window, dw);
                    out.give(1, dw);
                  }
                  if (out.wanted(2)) {
                    Tensor db = out.destination(2);
                    ops::bias_grad(dy, db);
                    out.give(2, db);
                  }
                });
}

// y = largest x in each window   =>   dx = sum of dy over the windows that x won (the first of equals wins)
Variable max_pool2d(const Variable& x, const Window& window) {
  const ops::MaxPooled pooled = ops::max_pool2d(x.value(), window);
  return record("max_pool2d", pooled.out, {x},
                [index = pooled.index, window, x_shape = x.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::max_pool2d_grad(dy, index, window, x_shape));
                });
}

// y = mean of x in each window   =>   dx = sum of dy / (kH kW) over the windows that hold x
Variable avg_pool2d(const Variable& x, const Window& window) {
  return record("avg_pool2d", ops::avg_pool2d(x.value(), window), {x},
                [window, x_shape = x.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::avg_pool2d_grad(dy, window, x_shape));
                });
}

// The same with windows of different sizes: each dy is divided by its own window's.
Variable adaptive_avg_pool2d(const Variable& x, std::int64_t out_h, std::int64_t out_w) {
  return record("adaptive_avg_pool2d", ops::adaptive_avg_pool2d(x.value(), out_h, out_w), {x},
                [x_shape = x.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::adaptive_avg_pool2d_grad(dy, x_shape));
                });
}

}  // namespace brigade
