// SPDX-License-Identifier: MIT
// kernels/cpu/amx/conv_pixels.cpp - tiles whose rows are 16 neighbouring pixels. An image is copied into a buffer
// with its padding around it; then the pixels that 16 neighbours see under one kernel position lie at a constant
// distance, which is all that a tile needs to be loaded. dx = dy ⋆ᵀ w with stride 1 is a convolution of dy that reads
// the kernel positions backwards.
// Read before: amx.h, pack.h, multiply.h.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/channel_sums.h"
#include "kernels/cpu/amx/padded.h"
#include "kernels/cpu/amx/patches.h"

namespace brigade::cpu::amx::pixels {

namespace {

template <class T>
struct Convolution {
  PaddedImages<T> source;
  const Packed& weights;
  std::int64_t images, target_channels;
  const float* bias;                     // [target_channels] or null.
  T* out;                                // [images, height.target, width.target, target_channels]
  Into into = Into::overwrite;           // What write() does to `out`.
  const ChannelSums* moments = nullptr;  // A slot an image, or null.

  std::int64_t segments_a_row() const { return source.width.target / kTileRows; }
  std::int64_t segments() const { return source.height.target * segments_a_row(); }

  // Where the first pixel of segment `s` sees position (0, 0).
  const bf16* first_source(const bf16* buffer, std::int64_t s) const {
    return source.seen(buffer, s / segments_a_row(), s % segments_a_row() * kTileRows, 0, 0);
  }

  // What the vector units do meanwhile: results of the block before, and the image that comes next.
  struct Meanwhile {
    ResultRows<T> results;
    ImageCopy<T>* copy = nullptr;
    std::int64_t pieces = 0;  // Of the copy, between two products.

    void some() {
      results.write_some();
      if (copy != nullptr) copy->some(pieces);
    }
  };

  template <Rows rows>
  void sum_of_products(const bf16* first, std::int64_t second, std::int64_t channel_block,
                       Meanwhile& meanwhile) const {
    const Line &height = source.height, &width = source.width;
    const std::int64_t depth = source.depth();
    const LeftTiles left{.second = second,
                         .row_bytes = width.stride * depth * static_cast<std::int64_t>(sizeof(bf16)),
                         .part = source.part_values()};
    zero_sums();
    for (std::int64_t i = 0; i < height.kernel; ++i)
      for (std::int64_t j = 0; j < width.kernel; ++j) {
        const bf16* a = first + i * height.step * source.row_values() + j * width.step * depth;
        const bf16* b = weights.at(channel_block, i * width.kernel + j);
        for (std::int64_t d = 0; d < depth; d += kBlock, b += weights.block_values()) {
          multiply<kParts<T>, rows>(a + d, left, b);
          meanwhile.some();
        }
      }
  }

  // Two segments at a time, of one row or of two: what they see is near while the weights pass by.
  void convolve(const bf16* buffer, const MomentSums& moment_sums, T* result, Meanwhile& meanwhile) const {
    for (std::int64_t s = 0; s < segments(); s += 2) {
      const bf16* first = first_source(buffer, s);
      const bool two = s + 1 < segments();
      for (std::int64_t c = 0; c < weights.first_size(); ++c) {
        if (two)
          sum_of_products<Rows::both>(first, first_source(buffer, s + 1) - first, c, meanwhile);
        else
          sum_of_products<Rows::first>(first, 0, c, meanwhile);
        meanwhile.results.take({.to = result + s * kTileRows * target_channels + c * kBlock,
                                .half = kTileRows * target_channels,
                                .row = target_channels,
                                .rows = {kTileRows, two ? kTileRows : 0},
                                .channel = c * kBlock,
                                .moments = moment_sums});
      }
    }
  }

  std::int64_t products() const {
    return (segments() + 1) / 2 * weights.first_size() * height_by_width() * weights.last_size();
  }
  std::int64_t height_by_width() const { return source.height.kernel * source.width.kernel; }

  void run() const {
    const std::int64_t threads = std::min<std::int64_t>(num_threads(), images);
    // Two buffers a thread, all at once: what a step needs at its peak must not depend on when threads start.
    const std::int64_t values = source.buffer_values();
    const Tensor buffers = Tensor::empty({threads, 2, values}, DType::bf16);
    parallel_for(threads, 1, [&](std::int64_t first, std::int64_t last) {
      const TileScope tiles;
      for (std::int64_t t = first; t < last; ++t) {
        bf16* const now = buffers.data<bf16>() + t * 2 * values;
        std::fill_n(now, 2 * values, bf16());
        run(images * t / threads, images * (t + 1) / threads, now, now + values);
      }
    });
  }

  void run(std::int64_t begin, std::int64_t end, bf16* now, bf16* next) const {
    ImageCopy<T>(source, begin, now).finish();
    Meanwhile meanwhile{{target_channels, bias, into}};
    for (std::int64_t n = begin; n < end; ++n) {
      ImageCopy<T> copy(source, std::min(n + 1, end - 1), next);
      meanwhile.copy = n + 1 < end ? &copy : nullptr;
      meanwhile.pieces = (copy.pieces() + products() - 1) / products();
      before_tile_loads();
      convolve(now, moments != nullptr ? moments->at(n) : MomentSums{},
               out + n * segments() * kTileRows * target_channels, meanwhile);
      std::swap(now, next);
    }
    meanwhile.results.finish();
  }
};

std::vector<bool> all_positions(const Tensor& w) {
  return std::vector<bool>(static_cast<std::size_t>(w.size(2) * w.size(3)), true);
}

template <class T>
void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
             const ChannelSums* moments, Tensor& out) {
  const PaddedImages<T> source{x.data<T>(), x.size(1), forward_line(x, out, window, 0),
                               forward_line(x, out, window, 1)};
  const Packed weights = pack_weights<kParts<T>>(w, Target::outputs, all_positions(w));
  const float* shift = bias.defined() ? bias.data<float>() : nullptr;
  Convolution<T>{source, weights, x.size(0), out.size(1), shift, out.data<T>(), Into::overwrite, moments}
      .run();
}

void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
             const ChannelSums* moments, Tensor& out) {
  if (wants_patches(x, window)) {
    const Tensor patches = patches_of(x, out, window);
    return forward(patches, w.view({w.size(0), patches.size(1), 1, 1}), bias, {}, moments, out);
  }
  if (x.dtype() == DType::bf16)
    forward<bf16>(x, w, bias, window, moments, out);
  else
    forward<float>(x, w, bias, window, moments, out);
}

template <class T>
void grad_input(const Tensor& dy, const Tensor& w, const Window& window, Into into, Tensor& dx) {
  const auto line = [&](int dim) {
    return Line{dy.size(2 + dim),    dx.size(2 + dim),     window.kernel[dim], 1,
                window.padding[dim], -window.dilation[dim]};
  };
  const PaddedImages<T> source{dy.data<T>(), dy.size(1), line(0), line(1)};
  const Packed weights = pack_weights<kParts<T>>(w, Target::inputs, all_positions(w));
  Convolution<T>{source, weights, dy.size(0), dx.size(1), nullptr, dx.data<T>(), into}.run();
}

void grad_input(const Tensor& dy, const Tensor& w, const Window& window, Into into, Tensor& dx) {
  if (dy.dtype() == DType::bf16)
    grad_input<bf16>(dy, w, window, into, dx);
  else
    grad_input<float>(dy, w, window, into, dx);
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  forward(x, w, bias, window, nullptr, out);
}

void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments& moments) {
  const ChannelSums sums(out.size(0), out.size(1));
  forward(x, w, bias, window, &sums, out);
  moments = sums.moments(out.numel() / out.size(1));
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  grad_input(dy, w, window, Into::overwrite, dx);
}

void add_conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  grad_input(dy, w, window, Into::add, dx);
}

}  // namespace brigade::cpu::amx::pixels
