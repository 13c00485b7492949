// SPDX-License-Identifier: MIT
// kernels/cpu/amx/geometry.h - which pixel meets which under each position of the kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace brigade::cpu::amx {

/// For every position of the kernel and every target pixel the source pixel, or -1 where that lies outside the image.
class Reach {
 public:
  Reach(std::int64_t positions, std::int64_t targets)
      : targets_(targets), source_(static_cast<std::size_t>(positions * targets), -1) {}
  std::int32_t& at(std::int64_t position, std::int64_t target) {
    return source_[static_cast<std::size_t>(position * targets_ + target)];
  }
  const std::int32_t* of(std::int64_t position) const { return source_.data() + position * targets_; }

 private:
  std::int64_t targets_;
  std::vector<std::int32_t> source_;
};

/// Sizes of a convolution and the two ways to look at it.
struct Geometry {
  std::int64_t images, in_channels, out_channels, positions;
  std::int64_t in_pixels, out_pixels;
  Reach from_out, from_in;  ///< Target an output pixel, source an input pixel; and the other way round.

  Geometry(const Tensor& x, const Tensor& y, const Window& window)
      : images(x.size(0)),
        in_channels(x.size(1)),
        out_channels(y.size(1)),
        positions(window.kernel[0] * window.kernel[1]),
        in_pixels(x.size(2) * x.size(3)),
        out_pixels(y.size(2) * y.size(3)),
        from_out(positions, out_pixels),
        from_in(positions, in_pixels) {
    const auto source = [&](int dim, std::int64_t out, std::int64_t k) {
      return out * window.stride[dim] - window.padding[dim] + k * window.dilation[dim];
    };
    for (std::int64_t k = 0; k < positions; ++k)
      for (std::int64_t p = 0; p < out_pixels; ++p) {
        const std::int64_t h = source(0, p / y.size(3), k / window.kernel[1]);
        const std::int64_t w = source(1, p % y.size(3), k % window.kernel[1]);
        if (h < 0 || h >= x.size(2) || w < 0 || w >= x.size(3)) continue;
        const std::int64_t q = h * x.size(3) + w;
        from_out.at(k, p) = static_cast<std::int32_t>(q);
        from_in.at(k, q) = static_cast<std::int32_t>(p);
      }
  }
};

}  // namespace brigade::cpu::amx
