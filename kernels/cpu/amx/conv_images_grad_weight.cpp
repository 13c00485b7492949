// SPDX-License-Identifier: MIT
// kernels/cpu/amx/conv_images_grad_weight.cpp - dw[o, c, k] = sum over images and output pixels p of dy[p, o] x[p +
// k, c]: for each kernel position a product whose depth is the images, added up over the pixels. Every element is one
// chain of additions in a fixed order, the same for any number of threads.
// Read before: amx.h, pack.h.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/packed.h"
#include "kernels/cpu/amx/patches.h"
#include "kernels/cpu/amx/weight_sums.h"

namespace brigade::cpu::amx::images {

namespace {

template <int parts>
struct GradWeight {
  const Geometry& g;
  Reach reach;
  std::int64_t out_blocks, in_blocks;
  Tensor sums;  // [units, positions, kSums]; a unit is a block of outputs by a block of inputs.

  explicit GradWeight(const Geometry& geometry)
      : g(geometry),
        reach(g.reach_of_outputs()),
        out_blocks(blocks(g.out_channels)),
        in_blocks(blocks(g.in_channels)),
        sums(Tensor::empty({out_blocks * in_blocks, g.positions, kSums})) {}

  // One group of images.
  struct Group {
    const Packed &dy, &x;
    std::int64_t length;  // Of the pairs (image block, output pixel).
    bool is_first, is_last;
  };

  // Adds pairs [begin, end) to the sums of one unit at one kernel position.
  void add(const Group& group, std::int64_t unit, std::int64_t position, std::int64_t begin, std::int64_t end,
           float* sums_at) const {
    constexpr LeftTiles kLeft{.second = kTileValues, .row_bytes = 64, .part = kBlockValues};
    if (begin == 0 && group.is_first)
      zero_sums();
    else
      load_sums(sums_at);
    const std::int32_t* sources = reach.of(position);
    std::int64_t image_block = begin / g.out_pixels, p = begin % g.out_pixels;
    for (std::int64_t i = begin; i < end; ++i) {
      if (sources[p] >= 0)
        multiply<parts, true>(group.dy.at(image_block, p, unit / in_blocks), kLeft,
                              group.x.at(image_block, sources[p], unit % in_blocks));
      if (++p == g.out_pixels) {
        p = 0;
        ++image_block;
      }
    }
    store_sums(sums_at);
  }

  // A band of pixels stays in the second-level cache while the units pass by; it is longer where the sums, which pass
  // by as well, are many.
  void run(const Group& group, float* dw) const {
    const std::int64_t units = out_blocks * in_blocks;
    const std::int64_t cache_bytes = std::max<std::int64_t>(1 << 20, sums.bytes() / 2);
    const std::int64_t pixel_bytes = out_blocks * group.dy.block_bytes() + in_blocks * group.x.block_bytes();
    const std::int64_t band = std::max<std::int64_t>(cache_bytes / pixel_bytes, 1);
    parallel_for(units, 1, [&](std::int64_t first, std::int64_t last) {
      const TileScope tiles;
      for (std::int64_t begin = 0; begin < group.length; begin += band)
        for (std::int64_t unit = first; unit < last; ++unit) {
          const std::int64_t end = std::min(begin + band, group.length);
          float* at = sums.data<float>() + unit * g.positions * kSums;
          for (std::int64_t k = 0; k < g.positions; ++k) add(group, unit, k, begin, end, at + k * kSums);
          if (end == group.length && group.is_last)
            write_weights(at, unit / in_blocks, unit % in_blocks, g, dw);
        }
    });
  }
};

// Images in groups whose packed form stays in the cache shared by cores. The size of a group does not depend on the
// number of threads: nor does the order of additions.
template <class T>
void grad_weight(const Tensor& dy, const Tensor& x, const Geometry& g, Tensor& dw) {
  constexpr std::int64_t kCacheBytes = 8 << 20;
  const GradWeight<kParts<T>> work(g);
  const std::int64_t block_bytes =
      (g.out_pixels * work.out_blocks + g.in_pixels * work.in_blocks) * kParts<T> * 2 * kTileBytes;
  const std::int64_t size = std::max<std::int64_t>(kCacheBytes / block_bytes, 1) * kBlock;
  for (std::int64_t first = 0; first < g.images; first += size) {
    const std::int64_t images = std::min(size, g.images - first);
    const Packed packed_dy = pack_images<Form::first_by_value>(
        dy.data<T>() + first * g.out_pixels * g.out_channels, images, g.out_pixels, g.out_channels);
    const Packed packed_x = pack_images<Form::second_by_value>(
        x.data<T>() + first * g.in_pixels * g.in_channels, images, g.in_pixels, g.in_channels);
    work.run({packed_dy, packed_x, blocks(images) * g.out_pixels, first == 0, first + images == g.images},
             dw.data<float>());
  }
}

}  // namespace

void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  if (wants_patches(x, window)) {
    const Tensor patches = patches_of(x, dy, window);
    Tensor flat = dw.view({dw.size(0), patches.size(1), 1, 1});
    return conv2d_grad_weight(dy, patches, {}, flat);
  }
  const Geometry g(x, dy, window);
  if (x.dtype() == DType::bf16)
    grad_weight<bf16>(dy, x, g, dw);
  else
    grad_weight<float>(dy, x, g, dw);
}

}  // namespace brigade::cpu::amx::images
