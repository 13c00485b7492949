// SPDX-License-Identifier: MIT
// kernels/cpu/amx/pixel_pairs.h - the gradient of weights sums over images, 32 at a time. Of 16 or fewer two output
// pixels side by side fill the 32; then so must what these two see, under each column of the kernel.
// Read before: geometry.h, packed.h. Read next: conv_images_grad_weight.cpp.
#pragma once

#include "kernels/cpu/amx/geometry.h"
#include "kernels/cpu/amx/packed.h"

namespace brigade::cpu::amx {

/// Pairs of output pixels by [row][pair], pairs of what they see by [input row][kernel column][pair].
struct PixelPairs {
  std::vector<PixelPair> outputs, inputs;
  Reach reach;  ///< From a pair of outputs to the pair of inputs.

  explicit PixelPairs(const Geometry& g) : reach(g.positions, g.out_size[0] * half(g.out_size[1])) {
    const std::int64_t count = half(g.out_size[1]);
    const auto pixel = [](std::int64_t row, std::int64_t column, std::int64_t width) {
      return column < 0 || column >= width ? -1 : static_cast<std::int32_t>(row * width + column);
    };
    for (std::int64_t h = 0; h < g.out_size[0]; ++h)
      for (std::int64_t m = 0; m < count; ++m)
        outputs.push_back({pixel(h, 2 * m, g.out_size[1]), pixel(h, 2 * m + 1, g.out_size[1])});
    for (std::int64_t h = 0; h < g.in_size[0]; ++h)
      for (std::int64_t j = 0; j < g.window.kernel[1]; ++j)
        for (std::int64_t m = 0; m < count; ++m)
          inputs.push_back({pixel(h, g.source(1, 2 * m, j), g.in_size[1]),
                            pixel(h, g.source(1, 2 * m + 1, j), g.in_size[1])});
    for (std::int64_t k = 0; k < g.positions; ++k)
      for (std::int64_t h = 0; h < g.out_size[0]; ++h)
        for (std::int64_t m = 0; m < count; ++m) {
          const std::int64_t row = g.source(0, h, k / g.window.kernel[1]);
          if (row < 0 || row >= g.in_size[0]) continue;
          const std::int64_t seen = (row * g.window.kernel[1] + k % g.window.kernel[1]) * count + m;
          const PixelPair& pair = inputs[static_cast<std::size_t>(seen)];
          if (pair.first >= 0 || pair.second >= 0)
            reach.at(k, h * count + m) = static_cast<std::int32_t>(seen);
        }
  }

 private:
  static std::int64_t half(std::int64_t width) { return (width + 1) / 2; }
};

}  // namespace brigade::cpu::amx
