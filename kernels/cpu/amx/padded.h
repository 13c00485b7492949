// SPDX-License-Identifier: MIT
// kernels/cpu/amx/padded.h - one image in a buffer with its padding around it: the pixels that neighbours see under
// one kernel position then lie at a constant distance. Read next: conv_pixels.cpp.
#pragma once

#include <algorithm>

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

  /// Values of a buffer, which starts as zeros.
  std::int64_t buffer_values() const { return kParts<T> * part_values(); }

  /// What target pixel (h, w) sees under kernel position (i, j).
  const bf16* seen(const bf16* buffer, std::int64_t h, std::int64_t w, std::int64_t i, std::int64_t j) const {
    return buffer + (h * height.stride + height.start + i * height.step - height.first()) * row_values() +
           (w * width.stride + width.start + j * width.step - width.first()) * depth();
  }
};

/// Copies one image into a buffer, 32 values at a time: between the tile products of the image before. The padding
/// stays zero from one image to the next.
template <class T>
class ImageCopy {
 public:
  ImageCopy(const PaddedImages<T>& images, std::int64_t image, bf16* buffer)
      : images_(images),
        from_(images.data + image * images.height.source * images.width.source * images.channels),
        to_(buffer - images.height.first() * images.row_values() - images.width.first() * images.depth()),
        pieces_(images.height.source * images.width.source * blocks(images.channels)) {}

  std::int64_t pieces() const { return pieces_; }
  void some(std::int64_t pieces) {
    for (std::int64_t i = std::min(pieces, pieces_ - done_); i > 0; --i) piece();
  }
  void finish() { some(pieces_); }

 private:
  void piece() {
    const std::int64_t count = std::min(kBlock, images_.channels - channel_);
    _mm_prefetch(reinterpret_cast<const char*>(from_) + 1024, _MM_HINT_T0);
    copy(from_, count, to_ + channel_);
    from_ += count;
    channel_ += kBlock;
    ++done_;
    if (channel_ < images_.depth()) return;
    channel_ = 0;
    to_ += images_.depth();
    if (++pixel_ < images_.width.source) return;
    pixel_ = 0;
    to_ += images_.row_values() - images_.width.source * images_.depth();
  }
  void copy(const bf16* from, std::int64_t count, bf16* to) const {
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
    _mm512_mask_storeu_epi16(to, mask, _mm512_maskz_loadu_epi16(mask, from));
  }
  void copy(const float* from, std::int64_t count, bf16* to) const {
    split_values(from, count, to, images_.part_values());
  }

  const PaddedImages<T>& images_;
  const T* from_;
  bf16* to_;
  std::int64_t pieces_, done_ = 0, pixel_ = 0, channel_ = 0;
};

}  // namespace brigade::cpu::amx
