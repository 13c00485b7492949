// SPDX-License-Identifier: MIT
// kernels/cpu/amx/conv_grad_weight.cpp - dw[o, c, k] = sum over images and output pixels p of dy[p, o] x[p + k, c]:
// for each kernel position a product whose depth is the images, added up over the pixels. Every element is one chain
// of additions in a fixed order, the same for any number of threads.
// Read before: amx.h, pack.h.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/amx/geometry.h"
#include "kernels/cpu/amx/multiply.h"
#include "kernels/cpu/amx/packed.h"
#include "kernels/cpu/amx/patches.h"
#include "kernels/cpu/amx/strided.h"

namespace brigade::cpu::amx::images {

namespace {

constexpr std::int64_t kSums = 4 * kTileRows * kTileRows;  // 32 outputs by 32 inputs: four tiles of f32.
constexpr int kStride = 64;

template <int parts>
struct GradWeight {
  const Geometry& g;
  const Packed &dy, &x;
  std::int64_t out_blocks, in_blocks;

  // Adds positions [begin, end) of (image block, output pixel) to the sums of one block of dw at one kernel position.
  void add(std::int64_t out_block, std::int64_t in_block, std::int64_t position, std::int64_t begin,
           std::int64_t end, float* sums) const {
    constexpr LeftTiles kLeft{.second = kTileValues, .row_bytes = 64, .part = kBlockValues};
    if (begin == 0) {
      zero_sums();
    } else {
      _tile_loadd(0, sums, kStride);
      _tile_loadd(1, sums + kSums / 4, kStride);
      _tile_loadd(2, sums + kSums / 2, kStride);
      _tile_loadd(3, sums + kSums / 4 * 3, kStride);
    }
    const std::int32_t* sources = g.from_out.of(position);
    std::int64_t image_block = begin / g.out_pixels, p = begin % g.out_pixels;
    for (std::int64_t i = begin; i < end; ++i) {
      if (sources[p] >= 0)
        multiply<parts, true>(dy.at(image_block, p, out_block), kLeft,
                              x.at(image_block, sources[p], in_block));
      if (++p == g.out_pixels) {
        p = 0;
        ++image_block;
      }
    }
    _tile_stored(0, sums, kStride);
    _tile_stored(1, sums + kSums / 4, kStride);
    _tile_stored(2, sums + kSums / 2, kStride);
    _tile_stored(3, sums + kSums / 4 * 3, kStride);
  }

  // The sums of a block at all positions -> dw [O, I, positions].
  void write(const float* sums, std::int64_t out_block, std::int64_t in_block, float* dw) const {
    const std::int64_t o = out_block * kBlock, c = in_block * kBlock;
    const std::int64_t rows = std::min(kBlock, g.out_channels - o),
                       width = std::min(kBlock, g.in_channels - c);
    const auto row_of = [&](std::int64_t k, std::int64_t r, std::int64_t half) {
      return sums + k * kSums + (r / 16 * 2 + half) * (kSums / 4) + r % 16 * 16;
    };
    for (std::int64_t r = 0; r < rows; ++r) {
      float* to = dw + ((o + r) * g.in_channels + c) * g.positions;
      if (g.positions == kNine && width == kBlock) {
        for (std::int64_t half = 0; half < 2; ++half) {
          __m512 values[kNine];
          for (std::int64_t k = 0; k < kNine; ++k) values[k] = _mm512_load_ps(row_of(k, r, half));
          join_nine(values, to + half * 16 * kNine);
        }
        continue;
      }
      for (std::int64_t v = 0; v < width; ++v)
        for (std::int64_t k = 0; k < g.positions; ++k) to[v * g.positions + k] = row_of(k, r, v / 16)[v % 16];
    }
  }

  // A unit is a block of outputs by a block of inputs. A band of pixels stays in the second-level cache while the
  // units pass by; it is longer where the sums, which pass by as well, are many.
  void run(float* dw) const {
    const std::int64_t units = out_blocks * in_blocks, length = blocks(g.images) * g.out_pixels;
    const std::int64_t cache_bytes = std::max<std::int64_t>(1 << 20, units * g.positions * kSums * 2);
    const std::int64_t pixel_bytes = out_blocks * dy.block_bytes() + in_blocks * x.block_bytes();
    const std::int64_t band = std::max<std::int64_t>(cache_bytes / pixel_bytes, 1);
    Tensor sums = Tensor::empty({units, g.positions * kSums});
    parallel_for(units, 1, [&](std::int64_t first, std::int64_t last) {
      const TileScope tiles;
      for (std::int64_t begin = 0; begin < length; begin += band)
        for (std::int64_t unit = first; unit < last; ++unit) {
          const std::int64_t o = unit / in_blocks, c = unit % in_blocks, end = std::min(begin + band, length);
          float* at = sums.data<float>() + unit * g.positions * kSums;
          for (std::int64_t k = 0; k < g.positions; ++k) add(o, c, k, begin, end, at + k * kSums);
          if (end == length) write(at, o, c, dw);
        }
    });
  }
};

template <class T>
void grad_weight(const Tensor& dy, const Tensor& x, const Geometry& g, Tensor& dw) {
  const Packed packed_dy =
      pack_images<Form::first_by_value>(dy.data<T>(), g.images, g.out_pixels, g.out_channels);
  const Packed packed_x =
      pack_images<Form::second_by_value>(x.data<T>(), g.images, g.in_pixels, g.in_channels);
  GradWeight<kParts<T>>{g, packed_dy, packed_x, blocks(g.out_channels), blocks(g.in_channels)}.run(
      dw.data<float>());
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
