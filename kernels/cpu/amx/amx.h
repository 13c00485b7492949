// SPDX-License-Identifier: MIT
// kernels/cpu/amx/amx.h - convolution on AMX tiles. A tile product multiplies 16 rows by 16 columns; the columns are
// channels of the result. There are two choices for the rows:
//
// images  16 images, all at the same pixel. No patch is gathered (no im2col), positions of the kernel outside the
//         image are left out rather than multiplied by zeros (31 % of the work on 4x4 images), and any stride,
//         dilation and padding is only another list of (source pixel, kernel position). For small images.
// pixels  16 neighbouring pixels of one image. What they see overlaps, so it stays in the first-level cache. For
//         rows of 16 pixels and more.
//
// In both a convolution is nothing but products over a batch of terms (Georganas et al., "High-Performance Deep
// Learning via a Single Building Block", 2020).
//
// f32 runs on the same tiles: a value is the sum of three bf16 values, which hold 8 bits of it each, and a product
// the sum of the six products of the largest parts (Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations", 2019). What is left out is below 2^-22 of a product, no
// more than f32 additions lose. Infinities become NaN.
// Read before: kernels/cpu/conv.cpp. Read next: pack.h, multiply.h, conv_images.cpp.
#pragma once

#include "kernels/kernels.h"

namespace brigade::cpu::amx {

/// Whether this processor and system let us use AMX. The others may be called only then.
bool available();

// Convolutions without groups, activations f32 or bf16 (all of one dtype), channels_last; w and dw f32, contiguous
// OIHW; bias f32 or undefined. Moments are those of the results before they are rounded; the same bits for any number
// of threads.

namespace images {
/// Right for any size, fast for batches of 16 images and more.
void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out);
void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments& moments);
void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
/// The same added to dx, in f32 before it is rounded.
void add_conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
/// The same bits for any number of threads.
void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw);
}  // namespace images

namespace pixels {
/// Whether the rows of a result of `width` pixels fill tiles.
inline bool fits(std::int64_t width) { return width % 16 == 0; }
/// Needs fits(width of out).
void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out);
void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments& moments);
/// Needs fits(width of dx) and a stride of 1.
void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
/// The same added to dx, in f32 before it is rounded.
void add_conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx);
}  // namespace pixels

}  // namespace brigade::cpu::amx
