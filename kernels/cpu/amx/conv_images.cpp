// SPDX-License-Identifier: MIT
// kernels/cpu/amx/conv_images.cpp - tiles whose rows are images: y = x ⋆ w, and dx = dy ⋆ᵀ w, which is the same sum
// with the roles of pixels and channels exchanged: for each target pixel the products of source pixels with the
// weights of a kernel position.
// Read before: amx.h, pack.h, multiply.h. Read next: conv_pixels.cpp.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/geometry.h"
#include "kernels/cpu/amx/multiply.h"
#include "kernels/cpu/amx/packed.h"
#include "kernels/cpu/amx/patches.h"

namespace brigade::cpu::amx::images {

namespace {

template <class T>
struct Convolution {
  const Packed& weights;
  const Reach& reach;
  std::int64_t positions, target_pixels, target_channels;
  const float* bias;               // [target_channels] or null.
  T* out;                          // [images, target_pixels, target_channels]
  std::int64_t images = 0;         // Of a group.
  const Packed* source = nullptr;  // Of a group.
  Into into = Into::overwrite;     // What write() does to `out`.

  template <bool two>
  void sum_of_products(std::int64_t image_block, std::int64_t pixel, std::int64_t channel_block) const {
    constexpr LeftTiles kLeft{.second = kTileValues, .row_bytes = 64, .part = kBlockValues};
    zero_sums();
    for (std::int64_t k = 0; k < positions; ++k) {
      const std::int32_t from = reach.of(k)[pixel];
      if (from < 0) continue;
      const bf16 *a = source->at(image_block, from), *b = weights.at(channel_block, k);
      for (std::int64_t d = 0; d < source->last_size(); ++d)
        multiply<kParts<T>, two>(a + d * source->block_values(), kLeft, b + d * source->block_values());
    }
  }

  void pixel(std::int64_t image_block, std::int64_t pixel, std::int64_t channel_block) const {
    const std::int64_t rows = std::min(kBlock, images - image_block * kBlock),
                       channel = channel_block * kBlock;
    if (rows > kTileRows)
      sum_of_products<true>(image_block, pixel, channel_block);
    else
      sum_of_products<false>(image_block, pixel, channel_block);
    T* to = out + (image_block * kBlock * target_pixels + pixel) * target_channels + channel;
    ResultBlock(channel, target_channels, bias, into).write(rows, [&](std::int64_t r) {
      return to + r * target_pixels * target_channels;
    });
  }

  // A unit of work is a run of pixels of a block of images whose sources stay in the second-level cache while the
  // weights of one block of channels after the other pass by.
  void run() const {
    constexpr std::int64_t kCacheBytes = 512 * 1024;
    const std::int64_t image_blocks = blocks(images), channel_blocks = blocks(target_channels);
    const std::int64_t pixel_bytes = source->last_size() * source->block_bytes();
    const std::int64_t share = (image_blocks * target_pixels + num_threads() - 1) / num_threads();
    const std::int64_t length =
        std::clamp<std::int64_t>(std::min(kCacheBytes / pixel_bytes, share), 1, target_pixels);
    const std::int64_t runs = (target_pixels + length - 1) / length;
    // Few pixels: the channels are divided too.
    const std::int64_t groups =
        image_blocks * runs >= num_threads() ? 1 : std::min<std::int64_t>(channel_blocks, num_threads());
    parallel_for(image_blocks * runs * groups, 1, [&](std::int64_t begin, std::int64_t end) {
      const TileScope tiles;
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t group = unit % groups, first = unit / groups % runs * length;
        const std::int64_t image_block = unit / groups / runs;
        for (std::int64_t c = channel_blocks * group / groups; c < channel_blocks * (group + 1) / groups; ++c)
          for (std::int64_t p = first; p < std::min(first + length, target_pixels); ++p)
            pixel(image_block, p, c);
      }
    });
  }
};

// Images in groups whose packed form stays in the cache shared by cores, a block for every thread at least.
template <class T>
void convolve(const T* source, std::int64_t source_pixels, std::int64_t source_channels, Convolution<T> c,
              const Geometry& g) {
  constexpr std::int64_t kCacheBytes = 8 << 20;
  const std::int64_t block_bytes = source_pixels * blocks(source_channels) * kParts<T> * 2 * kTileBytes;
  const std::int64_t group = std::max<std::int64_t>(kCacheBytes / block_bytes, num_threads()) * kBlock;
  for (std::int64_t first = 0; first < g.images; first += group) {
    c.images = std::min(group, g.images - first);
    const Packed packed = pack_images<Form::first_by_row>(source + first * source_pixels * source_channels,
                                                          c.images, source_pixels, source_channels);
    c.source = &packed;
    c.run();
    c.out += c.images * c.target_pixels * c.target_channels;
  }
}

template <class T>
void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Geometry& g, Tensor& out) {
  const Reach reach = g.reach_of_outputs();
  const Packed weights = pack_weights<kParts<T>>(w, Target::outputs, reach.used());
  convolve(x.data<T>(), g.in_pixels, g.in_channels,
           Convolution<T>{.weights = weights,
                          .reach = reach,
                          .positions = g.positions,
                          .target_pixels = g.out_pixels,
                          .target_channels = g.out_channels,
                          .bias = bias.defined() ? bias.data<float>() : nullptr,
                          .out = out.data<T>()},
           g);
}

template <class T>
void grad_input(const Tensor& dy, const Tensor& w, const Geometry& g, Into into, Tensor& dx) {
  const Reach reach = g.reach_of_inputs();
  const Packed weights = pack_weights<kParts<T>>(w, Target::inputs, reach.used());
  convolve(dy.data<T>(), g.out_pixels, g.out_channels,
           Convolution<T>{.weights = weights,
                          .reach = reach,
                          .positions = g.positions,
                          .target_pixels = g.in_pixels,
                          .target_channels = g.in_channels,
                          .bias = nullptr,
                          .out = dx.data<T>(),
                          .into = into},
           g);
}

void grad_input(const Tensor& dy, const Tensor& w, const Window& window, Into into, Tensor& dx) {
  const Geometry g(dx, dy, window);
  if (dy.dtype() == DType::bf16)
    grad_input<bf16>(dy, w, g, into, dx);
  else
    grad_input<float>(dy, w, g, into, dx);
}

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  if (wants_patches(x, window)) {
    const Tensor patches = patches_of(x, out, window);
    return conv2d(patches, w.view({w.size(0), patches.size(1), 1, 1}), bias, {}, out);
  }
  const Geometry g(x, out, window);
  if (x.dtype() == DType::bf16)
    forward<bf16>(x, w, bias, g, out);
  else
    forward<float>(x, w, bias, g, out);
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  grad_input(dy, w, window, Into::overwrite, dx);
}

void add_conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  grad_input(dy, w, window, Into::add, dx);
}

}  // namespace brigade::cpu::amx::images
