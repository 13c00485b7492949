// SPDX-License-Identifier: MIT
// kernels/cpu/amx/packed.h - a whole operand in tiles. Read before: pack.h.
#pragma once

#include <span>

#include "core/tensor.h"
#include "kernels/cpu/amx/pack.h"

namespace brigade::cpu::amx {

inline std::int64_t blocks(std::int64_t count) { return (count + kBlock - 1) / kBlock; }
inline std::int64_t half_blocks(std::int64_t count) { return (count + kTileRows - 1) / kTileRows; }

/// Blocks of two tiles, in `parts`, at three indices, the last one fastest.
class Packed {
 public:
  Packed(std::int64_t size0, std::int64_t size1, std::int64_t size2, std::int64_t parts)
      : memory_(Tensor::empty({size0 * size1 * size2 * parts * kBlockValues}, DType::bf16)),
        size0_(size0),
        size1_(size1),
        size2_(size2),
        block_values_(parts * kBlockValues) {}

  bf16* at(std::int64_t i, std::int64_t j, std::int64_t k = 0) const {
    return memory_.data<bf16>() + ((i * size1_ + j) * size2_ + k) * block_values_;
  }
  std::int64_t block_values() const { return block_values_; }
  std::int64_t block_bytes() const { return 2 * block_values_; }
  std::int64_t first_size() const { return size0_; }
  std::int64_t last_size() const { return size2_; }

 private:
  Tensor memory_;
  std::int64_t size0_, size1_, size2_, block_values_;
};

/// Whose blocks lie side by side: all channels of a pixel, or all pixels of 32 channels.
enum class Order { by_pixel, by_channel };

/// x [images, pixels, channels] in memory -> blocks of 32 images by 32 channels at [image block][pixel][channel
/// block] or [image block][channel block][pixel].
template <Form form, Order order, class T>
Packed pack_images(const T* x, std::int64_t images, std::int64_t pixels, std::int64_t channels);

/// Two pixels; -1 for one outside the image, whose values are zeros.
struct PixelPair {
  std::int32_t first, second;
};

/// The same of few images: blocks of 16 images, once at either pixel of a pair, by 32 channels at [block of 16
/// images][channel block][pair].
template <Form form, class T>
Packed pack_pixel_pairs(const T* x, std::int64_t images, std::int64_t pixels, std::int64_t channels,
                        std::span<const PixelPair> pairs);

/// Whose channels are the columns of the product; the other side's are its depth.
enum class Target { outputs, inputs };

/// w [O, I, kH, kW] f32, contiguous -> blocks at [target channel block][kernel position][depth block]. Kernel
/// positions that are not `used` are left out; one entry a position.
template <int parts>
Packed pack_weights(const Tensor& w, Target target, const std::vector<bool>& used);

}  // namespace brigade::cpu::amx
