// SPDX-License-Identifier: MIT
// kernels/cpu/amx/padded.h - one image in a buffer with its padding around it: the pixels that neighbours see under
// one kernel position then lie at a constant distance. Read next: conv_pixels.cpp.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amx/packed.h"
#include "kernels/kernels.h"

namespace brigade::cpu::amx {

/// Along one dim: target pixel t sees source pixel t stride + start + k step under kernel position k.
struct Line {
  std::int64_t source, target, kernel, stride, start, step;

  std::int64_t first() const {
    return std::min<std::int64_t>(start + std::min<std::int64_t>((kernel - 1) * step, 0), 0);
  }
  std::int64_t last() const {
    return std::max(source - 1,
                    (target - 1) * stride + start + std::max<std::int64_t>((kernel - 1) * step, 0));
  }
  std::int64_t padded() const { return last() - first() + 1; }
};

/// The line of a forward convolution along `dim` (0 height, 1 width) of x [N, C, H, W] and y.
inline Line forward_line(const Tensor& x, const Tensor& y, const Window& window, int dim) {
  return {x.size(2 + dim),    y.size(2 + dim),      window.kernel[dim],
          window.stride[dim], -window.padding[dim], window.dilation[dim]};
}

/// Images [height.source, width.source, channels] in memory, and the layout of one of them in a buffer: channels
/// filled up to whole blocks, kParts<T> times.
template <class T>
struct PaddedImages {
  const T* data;
  std::int64_t channels;
  Line height, width;

  std::int64_t depth() const { return blocks(channels) * kBlock; }
  std::int64_t row_values() const { return width.padded() * depth(); }
  std::int64_t part_values() const { return height.padded() * row_values(); }

  Tensor new_buffer() const { return Tensor::zeros({kParts<T> * part_values()}, DType::bf16); }

  /// The padding stays zero from one image to the next.
  void copy(std::int64_t image, bf16* buffer) const {
    for (std::int64_t h = 0; h < height.source; ++h) {
      bf16* to = buffer + (h - height.first()) * row_values() - width.first() * depth();
      const T* from = data + (image * height.source + h) * width.source * channels;
      const std::int64_t runs = channels == depth() ? 1 : width.source,
                         count = width.source * channels / runs;
      for (std::int64_t r = 0; r < runs; ++r) copy_values(from + r * count, count, to + r * depth());
    }
  }

  /// What target pixel (h, w) sees under kernel position (i, j).
  const bf16* seen(const bf16* buffer, std::int64_t h, std::int64_t w, std::int64_t i, std::int64_t j) const {
    return buffer + (h * height.stride + height.start + i * height.step - height.first()) * row_values() +
           (w * width.stride + width.start + j * width.step - width.first()) * depth();
  }

 private:
  void copy_values(const bf16* from, std::int64_t count, bf16* to) const {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(bf16));
  }
  void copy_values(const float* from, std::int64_t count, bf16* to) const {
    split_values(from, count, to, part_values());
  }
};

}  // namespace brigade::cpu::amx
