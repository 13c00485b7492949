// SPDX-License-Identifier: MIT
// kernels/cpu/amx/patches.h - few channels (the three colours of an image) would leave most of a tile's depth empty:
// what an output pixel sees becomes the channels of one pixel, and the convolution a 1x1 one.
#pragma once

#include "kernels/kernels.h"

namespace brigade::cpu::amx {

/// Whether x [N, C, H, W] has so few channels under a kernel of several pixels.
bool wants_patches(const Tensor& x, const Window& window);

/// [N, C kH kW, oH, oW] channels_last, channels in the order of a filter's memory: c, then kernel row, then column.
Tensor patches_of(const Tensor& x, const Tensor& y, const Window& window);

}  // namespace brigade::cpu::amx
