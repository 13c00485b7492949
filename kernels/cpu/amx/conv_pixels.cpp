// SPDX-License-Identifier: MIT
// kernels/cpu/amx/conv_pixels.cpp - tiles whose rows are 16 neighbouring pixels. An image is copied into a buffer
// with its padding around it; then the pixels that 16 neighbours see under one kernel position lie at a constant
// distance, which is all that a tile needs to be loaded. dx = dy ⋆ᵀ w with stride 1 is a convolution of dy that reads
// the kernel positions backwards.
// Read before: amx.h, pack.h, multiply.h.
#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/multiply.h"
#include "kernels/cpu/amx/packed.h"
#include "kernels/cpu/amx/patches.h"

namespace brigade::cpu::amx::pixels {

namespace {

void copy_values(const bf16* from, std::int64_t count, bf16* to, std::int64_t) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(bf16));
}
void copy_values(const float* from, std::int64_t count, bf16* to, std::int64_t part) {
  split_values(from, count, to, part);
}

// Along one dim: target pixel t sees source pixel t stride + start + k step under kernel position k.
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

template <class T>
struct Convolution {
  const T* source;  // [images, height.source, width.source, channels]
  const Packed& weights;
  Line height, width;
  std::int64_t images, channels, target_channels;
  const float* bias;  // [target_channels] or null.
  T* out;             // [images, height.target, width.target, target_channels]

  static constexpr int kPartsOfT = kParts<T>;
  std::int64_t depth() const { return blocks(channels) * kBlock; }
  std::int64_t row_values() const { return width.padded() * depth(); }
  std::int64_t part_values() const { return height.padded() * row_values(); }
  std::int64_t segments_a_row() const { return width.target / kTileRows; }

  // The padding stays zero from one image to the next.
  void copy_image(const T* image, bf16* buffer) const {
    for (std::int64_t h = 0; h < height.source; ++h) {
      bf16* to = buffer + (h - height.first()) * row_values() - width.first() * depth();
      const T* from = image + h * width.source * channels;
      if (channels == depth()) {
        copy_values(from, width.source * channels, to, part_values());
        continue;
      }
      for (std::int64_t w = 0; w < width.source; ++w)
        copy_values(from + w * channels, channels, to + w * depth(), part_values());
    }
  }

  // Where the first pixel of segment `s` sees position (0, 0).
  const bf16* first_source(const bf16* buffer, std::int64_t s) const {
    const std::int64_t h = s / segments_a_row(), w = s % segments_a_row() * kTileRows;
    return buffer + (h * height.stride + height.start - height.first()) * row_values() +
           (w * width.stride + width.start - width.first()) * depth();
  }

  template <bool two>
  void sum_of_products(const bf16* first, std::int64_t second, std::int64_t channel_block) const {
    const LeftTiles left{.second = second,
                         .row_bytes = width.stride * depth() * static_cast<std::int64_t>(sizeof(bf16)),
                         .part = part_values()};
    zero_sums();
    for (std::int64_t i = 0; i < height.kernel; ++i)
      for (std::int64_t j = 0; j < width.kernel; ++j) {
        const bf16* a = first + i * height.step * row_values() + j * width.step * depth();
        const bf16* b = weights.at(channel_block, i * width.kernel + j);
        for (std::int64_t d = 0; d < depth(); d += kBlock, b += weights.block_values())
          multiply<kPartsOfT, two>(a + d, left, b);
      }
  }

  // Two segments at a time, of one row or of two.
  void convolve(const bf16* buffer, T* result) const {
    const std::int64_t segments = height.target * segments_a_row();
    for (std::int64_t c = 0; c < weights.first_size(); ++c) {
      const ResultBlock block(c * kBlock, target_channels, bias);
      for (std::int64_t s = 0; s < segments; s += 2) {
        const bf16* first = first_source(buffer, s);
        const std::int64_t rows = std::min(2 * kTileRows, (segments - s) * kTileRows);
        if (rows > kTileRows)
          sum_of_products<true>(first, first_source(buffer, s + 1) - first, c);
        else
          sum_of_products<false>(first, 0, c);
        block.write(rows, [&](std::int64_t r) {
          return result + (s * kTileRows + r) * target_channels + c * kBlock;
        });
      }
    }
  }

  void run() const {
    parallel_for(images, 1, [&](std::int64_t begin, std::int64_t end) {
      const TileScope tiles;
      Tensor buffer = Tensor::zeros({kPartsOfT * part_values()}, DType::bf16);
      for (std::int64_t n = begin; n < end; ++n) {
        copy_image(source + n * height.source * width.source * channels, buffer.data<bf16>());
        convolve(buffer.data<bf16>(), out + n * height.target * width.target * target_channels);
      }
    });
  }
};

template <class T>
void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  const auto line = [&](int dim) {
    return Line{x.size(2 + dim),    out.size(2 + dim),    window.kernel[dim],
                window.stride[dim], -window.padding[dim], window.dilation[dim]};
  };
  const Packed weights = pack_weights<kParts<T>>(w, Target::outputs);
  const float* shift = bias.defined() ? bias.data<float>() : nullptr;
  Convolution<T>{x.data<T>(), weights,     line(0), line(1),      x.size(0),
                 x.size(1),   out.size(1), shift,   out.data<T>()}
      .run();
}

template <class T>
void grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  const auto line = [&](int dim) {
    return Line{dy.size(2 + dim),    dx.size(2 + dim),     window.kernel[dim], 1,
                window.padding[dim], -window.dilation[dim]};
  };
  const Packed weights = pack_weights<kParts<T>>(w, Target::inputs);
  Convolution<T>{dy.data<T>(), weights,    line(0), line(1),     dy.size(0),
                 dy.size(1),   dx.size(1), nullptr, dx.data<T>()}
      .run();
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  if (wants_patches(x, window)) {
    const Tensor patches = patches_of(x, out, window);
    return conv2d(patches, w.view({w.size(0), patches.size(1), 1, 1}), bias, {}, out);
  }
  if (x.dtype() == DType::bf16)
    forward<bf16>(x, w, bias, window, out);
  else
    forward<float>(x, w, bias, window, out);
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  if (dy.dtype() == DType::bf16)
    grad_input<bf16>(dy, w, window, dx);
  else
    grad_input<float>(dy, w, window, dx);
}

}  // namespace brigade::cpu::amx::pixels
