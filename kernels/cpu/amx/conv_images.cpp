// SPDX-License-Identifier: MIT
// kernels/cpu/amx/conv_images.cpp - tiles whose rows are images: y = x ⋆ w, and dx = dy ⋆ᵀ w, which is the same sum
// with the roles of pixels and channels exchanged: for each target pixel the products of source pixels with the
// weights of a kernel position.
// Read before: amx.h, pack.h, multiply.h. Read next: conv_pixels.cpp.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/channel_sums.h"
#include "kernels/cpu/amx/geometry.h"
#include "kernels/cpu/amx/packed.h"
#include "kernels/cpu/amx/patches.h"

namespace brigade::cpu::amx::images {

namespace {

// A thread computes whole runs of this many pixels: each has its own sums (ChannelSums).
constexpr std::int64_t kRun = 4;

std::int64_t runs(std::int64_t pixels) { return (pixels + kRun - 1) / kRun; }
std::int64_t slots(std::int64_t images, std::int64_t pixels) { return blocks(images) * runs(pixels); }

template <class T>
struct Convolution {
  const Packed& weights;
  const Reach& reach;
  std::int64_t positions, target_pixels, target_channels;
  const float* bias;                     // [target_channels] or null.
  T* out;                                // [images, target_pixels, target_channels]
  std::int64_t images = 0;               // Of a group.
  const Packed* source = nullptr;        // Of a group.
  Into into = Into::overwrite;           // What write() does to `out`.
  const ChannelSums* moments = nullptr;  // A slot for kRun pixels of a block of images, or null.
  std::int64_t first_block = 0;          // Of a group.

  // A block of 32 images fills both left tiles at a pixel. One of 16 or less fills one: the other is the next pixel.
  struct Target {
    std::int64_t image_block, images, pixel;
    bool two_pixels, has_second;
  };
  Target target(std::int64_t image_block, std::int64_t pixel) const {
    const std::int64_t rows = std::min(kBlock, images - image_block * kBlock);
    const bool two_pixels = rows <= kTileRows;
    return {image_block, rows, pixel, two_pixels, two_pixels ? pixel + 1 < target_pixels : true};
  }

  // What is done between two products: results of the block before.
  struct Meanwhile {
    ResultRows<T> results;
    TimelyStores<kParts<T>> stores = {};

    void some() {
      results.write_some();
      stores.after_multiply();
    }
  };

  template <Rows rows>
  void multiply_blocks(const bf16* a, std::int64_t second, const bf16* b, Meanwhile& meanwhile) const {
    const LeftTiles left{.second = second, .row_bytes = 64, .part = kBlockValues};
    for (std::int64_t d = 0; d < source->last_size();
         ++d, a += source->block_values(), b += source->block_values()) {
      multiply<kParts<T>, rows>(a, left, b);
      meanwhile.some();
    }
  }

  void sum_of_products(const Target& t, std::int64_t channel_block, Meanwhile& meanwhile) const {
    zero_sums();
    for (std::int64_t k = 0; k < positions; ++k) {
      const std::int32_t* from = reach.of(k) + t.pixel;
      const bf16* b = weights.at(channel_block, k);
      const auto at = [&](std::int64_t pixel) { return source->at(t.image_block, pixel); };
      if (!t.two_pixels) {
        if (from[0] >= 0) multiply_blocks<Rows::both>(at(from[0]), kTileValues, b, meanwhile);
        continue;
      }
      const bool first = from[0] >= 0, second = t.has_second && from[1] >= 0;
      if (first && second)
        multiply_blocks<Rows::both>(at(from[0]), at(from[1]) - at(from[0]), b, meanwhile);
      else if (first)
        multiply_blocks<Rows::first>(at(from[0]), 0, b, meanwhile);
      else if (second)
        multiply_blocks<Rows::second>(at(from[1]), 0, b, meanwhile);
    }
  }

  ResultPlace<T> place(const Target& t, std::int64_t channel_block) const {
    const std::int64_t image = target_pixels * target_channels, channel = channel_block * kBlock;
    const std::int64_t first = std::min(t.images, kTileRows);
    return {.to = out + t.image_block * kBlock * image + t.pixel * target_channels + channel,
            .half = t.two_pixels ? target_channels : kTileRows * image,
            .row = image,
            .rows = {first, t.two_pixels ? (t.has_second ? first : 0) : t.images - kTileRows},
            .channel = channel,
            .moments = moments != nullptr ? moments->at(slot(t)) : MomentSums{}};
  }
  std::int64_t slot(const Target& t) const {
    return (first_block + t.image_block) * runs(target_pixels) + t.pixel / kRun;
  }

  // A unit of work is a piece of a block of images, pixels whose sources stay in the second-level cache while the
  // weights of one block of channels after the other pass by.
  void run() const {
    constexpr std::int64_t kCacheBytes = 512 * 1024;
    const auto count = [](std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; };
    const std::int64_t channel_blocks = blocks(target_channels), threads = num_threads();
    const std::int64_t most =
        std::max<std::int64_t>(kCacheBytes / (source->last_size() * source->block_bytes()), 1);
    // Whole runs; so pixels may go in pairs, too.
    std::int64_t pixels = std::min(target_pixels, count(most, kRun) * kRun), channels = channel_blocks;
    const auto units = [&] {
      return blocks(images) * count(target_pixels, pixels) * count(channel_blocks, channels);
    };
    // Equal work for all threads: the channels are divided first, as the weights are the larger side where pixels are
    // few.
    const auto uneven = [&] { return units() < 4 * threads && units() % threads != 0; };
    while (channels > 1 && uneven()) channels = count(channels, 2);
    while (pixels > kRun && uneven()) pixels = count(pixels, 2 * kRun) * kRun;
    const std::int64_t pieces = count(target_pixels, pixels), groups = count(channel_blocks, channels);
    parallel_for(units(), 1, [&](std::int64_t begin, std::int64_t end) {
      const TileScope tiles;
      Meanwhile meanwhile{{target_channels, bias, into}};
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t image_block = unit / groups / pieces, first = unit / groups % pieces * pixels;
        const std::int64_t group = unit % groups * channels;
        for (std::int64_t c = group; c < std::min(group + channels, channel_blocks); ++c)
          for (std::int64_t p = first; p < std::min(first + pixels, target_pixels);) {
            const Target t = target(image_block, p);
            sum_of_products(t, c, meanwhile);
            meanwhile.results.take(place(t, c));
            p += t.two_pixels ? 2 : 1;
          }
      }
      meanwhile.results.finish();
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
    const Packed packed = pack_images<Form::first_by_row, Order::by_pixel>(
        source + first * source_pixels * source_channels, c.images, source_pixels, source_channels);
    c.source = &packed;
    c.run();
    c.out += c.images * c.target_pixels * c.target_channels;
    c.first_block += blocks(c.images);
  }
}

template <class T>
void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Geometry& g,
             const ChannelSums* moments, Tensor& out) {
  const Reach reach = g.reach_of_outputs();
  const Packed weights = pack_weights<kParts<T>>(w, Target::outputs, reach.used());
  convolve(x.data<T>(), g.in_pixels, g.in_channels,
           Convolution<T>{.weights = weights,
                          .reach = reach,
                          .positions = g.positions,
                          .target_pixels = g.out_pixels,
                          .target_channels = g.out_channels,
                          .bias = bias.defined() ? bias.data<float>() : nullptr,
                          .out = out.data<T>(),
                          .moments = moments},
           g);
}

void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
             const ChannelSums* moments, Tensor& out) {
  if (wants_patches(x, window)) {
    const Tensor patches = patches_of(x, out, window);
    return forward(patches, w.view({w.size(0), patches.size(1), 1, 1}), bias, {}, moments, out);
  }
  const Geometry g(x, out, window);
  if (x.dtype() == DType::bf16)
    forward<bf16>(x, w, bias, g, moments, out);
  else
    forward<float>(x, w, bias, g, moments, out);
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
  forward(x, w, bias, window, nullptr, out);
}

void conv2d_with_moments(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window,
                         Tensor& out, ChannelMoments& moments) {
  const std::int64_t pixels = out.size(2) * out.size(3);
  const ChannelSums sums(slots(out.size(0), pixels), out.size(1));
  forward(x, w, bias, window, &sums, out);
  moments = sums.moments(out.size(0) * pixels);
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  grad_input(dy, w, window, Into::overwrite, dx);
}

void add_conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  grad_input(dy, w, window, Into::add, dx);
}

}  // namespace brigade::cpu::amx::images
