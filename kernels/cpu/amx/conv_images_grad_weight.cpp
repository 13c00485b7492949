// SPDX-License-Identifier: MIT
// kernels/cpu/amx/conv_images_grad_weight.cpp - dw[o, c, k] = sum over images and output pixels p of dy[p, o] x[p +
// k, c]: for each kernel position a product whose depth is the images, added up over the pixels. Pixels come in bands
// and images in groups whose sizes follow from the shapes alone: so does the order of an element's additions, which is
// the same for any number of threads.
// Read before: amx.h, pack.h.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/packed.h"
#include "kernels/cpu/amx/patches.h"
#include "kernels/cpu/amx/pixel_pairs.h"
#include "kernels/cpu/amx/weight_sums.h"

namespace brigade::cpu::amx::images {

namespace {

template <int parts>
struct GradWeight {
  const Geometry& g;
  Reach reach;
  std::int64_t out_blocks, in_blocks;
  Tensor sums;  // [out_blocks, in_blocks, positions, kSums]

  GradWeight(const Geometry& geometry, Reach reach_)
      : g(geometry),
        reach(std::move(reach_)),
        out_blocks(blocks(g.out_channels)),
        in_blocks(blocks(g.in_channels)),
        sums(Tensor::empty({out_blocks, in_blocks, g.positions, kSums})) {}

  // One group of images.
  struct Group {
    const Packed &dy, &x;
    std::int64_t targets;  // Output pixels, or pairs of them, of an image.
    std::int64_t length;   // Of the pairs (image block, target).
    bool is_first, is_last;
  };

  // What is done between two products.
  struct Meanwhile {
    WeightRows weights;
    SumRows sums = {};
    TimelyStores<parts> stores = {};

    void some() {
      sums.some();
      weights.some();
      stores.after_multiply();
    }
  };

  // Adds pairs [begin, end) to the sums of one unit at one kernel position.
  void add(const Group& group, std::int64_t out_block, std::int64_t in_block, std::int64_t position,
           std::int64_t begin, std::int64_t end, float* unit_sums, Meanwhile& meanwhile) const {
    constexpr LeftTiles kLeft{.second = kTileValues, .row_bytes = 64, .part = kBlockValues};
    const std::int32_t* sources = reach.of(position);
    std::int64_t image_block = begin / group.targets, p = begin % group.targets;
    zero_sums();
    for (std::int64_t i = begin; i < end; ++i) {
      if (sources[p] >= 0) {
        multiply<parts, Rows::both>(group.dy.at(image_block, out_block, p), kLeft,
                                    group.x.at(image_block, in_block, sources[p]));
        meanwhile.some();
      }
      if (++p == group.targets) {
        p = 0;
        ++image_block;
      }
    }
    meanwhile.sums.take(unit_sums + position * kSums, begin > 0 || !group.is_first);
  }

  // A band of pixels stays in the second-level cache while the blocks of weights pass by; it is longer where the
  // sums, which pass by as well, are many.
  void run(const Group& group, float* dw) const {
    const std::int64_t cache_bytes = std::max<std::int64_t>(1 << 20, sums.bytes() / 2);
    const std::int64_t pixel_bytes = out_blocks * group.dy.block_bytes() + in_blocks * group.x.block_bytes();
    const std::int64_t band = std::max<std::int64_t>(cache_bytes / pixel_bytes, 1);
    const bool one_band = group.is_first && group.is_last && band >= group.length;
    parallel_for(out_blocks * in_blocks, 1, [&](std::int64_t first, std::int64_t last) {
      const TileScope tiles;
      Meanwhile meanwhile{{g, dw}};
      for (std::int64_t begin = 0; begin < group.length; begin += band)
        for (std::int64_t i = first; i < last; ++i) {
          const std::int64_t o = i / in_blocks, c = i % in_blocks, end = std::min(begin + band, group.length);
          // Sums that no other band adds to move to the gradient at once: memory for two units stays in the cache.
          float* unit_sums = sums_of(one_band ? first + (i - first) % 2 : i);
          for (std::int64_t k = 0; k < g.positions; ++k)
            add(group, o, c, k, begin, end, unit_sums, meanwhile);
          meanwhile.sums.finish();
          if (end == group.length && group.is_last) meanwhile.weights.take(unit_sums, o, c);
        }
      meanwhile.weights.finish();
    });
  }

 private:
  float* sums_of(std::int64_t unit) const { return sums.data<float>() + unit * g.positions * kSums; }
};

// At most 16 images.
template <class T>
void grad_weight_of_few(const Tensor& dy, const Tensor& x, const Geometry& g, Tensor& dw) {
  const PixelPairs pairs(g);
  const auto count = static_cast<std::int64_t>(pairs.outputs.size());
  const Packed packed_dy = pack_pixel_pairs<Form::first_by_value>(dy.data<T>(), g.images, g.out_pixels,
                                                                  g.out_channels, pairs.outputs);
  const Packed packed_x = pack_pixel_pairs<Form::second_by_value>(x.data<T>(), g.images, g.in_pixels,
                                                                  g.in_channels, pairs.inputs);
  GradWeight<kParts<T>>(g, pairs.reach)
      .run({packed_dy, packed_x, count, count, true, true}, dw.data<float>());
}

// Images in groups whose packed form stays in the cache shared by cores. The size of a group does not depend on the
// number of threads: nor does the order of additions.
template <class T>
void grad_weight(const Tensor& dy, const Tensor& x, const Geometry& g, Tensor& dw) {
  constexpr std::int64_t kCacheBytes = 8 << 20;
  if (g.images <= kTileRows) return grad_weight_of_few<T>(dy, x, g, dw);
  const GradWeight<kParts<T>> work(g, g.reach_of_outputs());
  const std::int64_t block_bytes =
      (g.out_pixels * work.out_blocks + g.in_pixels * work.in_blocks) * kParts<T> * 2 * kTileBytes;
  const std::int64_t size = std::max<std::int64_t>(kCacheBytes / block_bytes, 1) * kBlock;
  for (std::int64_t first = 0; first < g.images; first += size) {
    const std::int64_t images = std::min(size, g.images - first);
    const Packed packed_dy = pack_images<Form::first_by_value, Order::by_channel>(
        dy.data<T>() + first * g.out_pixels * g.out_channels, images, g.out_pixels, g.out_channels);
    const Packed packed_x = pack_images<Form::second_by_value, Order::by_channel>(
        x.data<T>() + first * g.in_pixels * g.in_channels, images, g.in_pixels, g.in_channels);
    work.run({packed_dy, packed_x, g.out_pixels, blocks(images) * g.out_pixels, first == 0,
              first + images == g.images},
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
