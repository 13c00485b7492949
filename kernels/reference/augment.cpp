// SPDX-License-Identifier: MIT
// kernels/reference/augment.cpp - crop, flip, normalise, cut out: one pixel at a time, as in data/augment.cpp.
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {

void augment_images(const Tensor& images, const Tensor& placements, const Tensor& values, std::int64_t cutout,
                    Tensor& out) {
  const std::int64_t height = images.size(2), width = images.size(3);
  for_each_index(out.shape(), [&](const Dims& o) {
    const std::int64_t n = o[0], c = o[1], y = o[2], x = o[3];
    const auto placed = [&](std::int64_t what) {
      return static_cast<std::int64_t>(get(placements, n, what));
    };
    const std::int64_t from_y = y + placed(0), from_x = (placed(2) != 0 ? width - 1 - x : x) + placed(1);
    const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
    const auto byte = static_cast<std::int64_t>(inside ? get(images, n, c, from_y, from_x) : 0);
    const std::int64_t top = placed(3) - cutout / 2, left = placed(4) - cutout / 2;
    const bool cut = y >= top && y < top + cutout && x >= left && x < left + cutout;
    set(out, cut ? 0 : get(values, c, byte), n, c, y, x);
  });
}

}  // namespace brigade::reference
