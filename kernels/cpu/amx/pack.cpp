// SPDX-License-Identifier: MIT
// kernels/cpu/amx/pack.cpp - 32 x 32 values in registers, interleaved or transposed on their way to tiles.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/amx/packed.h"
#include "kernels/cpu/amx/strided.h"

namespace brigade::cpu::amx {

namespace {

__mmask32 mask_of(std::int64_t values) {
  return static_cast<__mmask32>(values >= 32 ? ~0u : (1u << std::max<std::int64_t>(values, 0)) - 1u);
}

void load_row(const bf16* data, std::int64_t values, __m512i (&parts)[1]) {
  parts[0] = _mm512_maskz_loadu_epi16(mask_of(values), data);
}

// 32 values as bf16 parts. One part is rounded to nearest even. Of several each takes the next 8 bits, and together
// they are the value exactly: what truncation leaves can be computed without error.
template <int count>
void split(__m512 low, __m512 high, __m512i (&parts)[count]) {
  if constexpr (count == 1) {
    parts[0] = (__m512i)_mm512_cvtne2ps_pbh(high, low);
  } else {
    alignas(64) static constexpr auto kUpperHalves = [] {
      struct {
        std::int16_t of[32];
      } index{};
      for (int i = 0; i < 32; ++i) index.of[i] = static_cast<std::int16_t>(2 * i + 1);
      return index;
    }();
    const __m512i index = _mm512_load_si512(kUpperHalves.of);
    const auto truncated = [](__m512 x) {
      return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(-0x10000)));
    };
    for (__m512i& part : parts) {
      part = _mm512_permutex2var_epi16(_mm512_castps_si512(low), index, _mm512_castps_si512(high));
      low = _mm512_sub_ps(low, truncated(low));
      high = _mm512_sub_ps(high, truncated(high));
    }
  }
}

template <int count>
void load_row(const float* data, std::int64_t values, __m512i (&parts)[count]) {
  const __mmask32 mask = mask_of(values);
  split(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), data),
        _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), data + 16), parts);
}

// out[i] holds dword i of each of the 16 rows.
void transpose_dwords(const __m512i* rows, __m512i* out) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  // b[4 q + d] holds, lane by lane, dword 4 lane + d of rows 4 q to 4 q + 3.
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  // Gather the same lane of the four.
  for (int d = 0; d < 4; ++d) {
    const __m512i even_low = _mm512_shuffle_i32x4(b[d], b[4 + d], 0x88),
                  odd_low = _mm512_shuffle_i32x4(b[d], b[4 + d], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(b[8 + d], b[12 + d], 0x88),
                  odd_high = _mm512_shuffle_i32x4(b[8 + d], b[12 + d], 0xdd);
    out[d] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    out[8 + d] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    out[4 + d] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    out[12 + d] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

// low: values 0 to 15 of two rows, alternating; high: 16 to 31.
void interleave(__m512i even, __m512i odd, __m512i& low, __m512i& high) {
  alignas(64) static constexpr auto kIndex = [] {
    struct {
      std::int16_t low[32], high[32];
    } index{};
    for (int i = 0; i < 32; ++i) {
      index.low[i] = static_cast<std::int16_t>(i / 2 + i % 2 * 32);
      index.high[i] = static_cast<std::int16_t>(16 + i / 2 + i % 2 * 32);
    }
    return index;
  }();
  low = _mm512_permutex2var_epi16(even, _mm512_load_si512(kIndex.low), odd);
  high = _mm512_permutex2var_epi16(even, _mm512_load_si512(kIndex.high), odd);
}

template <Form form>
void write(const __m512i* rows, bf16* tiles) {
  const auto store = [&](std::int64_t line, __m512i values) {
    _mm512_store_si512(tiles + line * kTileDepth, values);
  };
  if constexpr (form == Form::first_by_row) {
    for (int r = 0; r < 32; ++r) store(r, rows[r]);
  } else if constexpr (form == Form::second_by_row) {
    // Depth in pairs of values: a dword is one, so dwords change places.
    for (int half = 0; half < 2; ++half) {
      __m512i out[16];
      transpose_dwords(rows + 16 * half, out);
      for (int i = 0; i < 16; ++i) store(16 * half + i, out[i]);
    }
  } else {
    __m512i halves[2][16];
    for (int pair = 0; pair < 16; ++pair)
      interleave(rows[2 * pair], rows[2 * pair + 1], halves[0][pair], halves[1][pair]);
    for (int half = 0; half < 2; ++half) {
      __m512i out[16];
      if constexpr (form == Form::first_by_value) transpose_dwords(halves[half], out);
      for (int i = 0; i < 16; ++i)
        store(16 * half + i, form == Form::first_by_value ? out[i] : halves[half][i]);
    }
  }
}

// The 32 rows of a block and the tiles they become.
template <int parts>
struct RowsOfBlock {
  __m512i of[parts][32];

  template <class T>
  void load(std::int64_t r, const T* data, std::int64_t values) {
    __m512i row[parts];
    // Two or so pixels ahead: a row's next pixel lies behind this one, its next row in another page.
    if constexpr (parts > 1) {
      _mm_prefetch(reinterpret_cast<const char*>(data) + 512, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(data) + 576, _MM_HINT_T0);
    }
    load_row(data, values, row);
    for (int p = 0; p < parts; ++p) of[p][r] = row[p];
  }
  void clear(std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r)
      for (int p = 0; p < parts; ++p) of[p][r] = _mm512_setzero_si512();
  }
  template <Form form>
  void write(bf16* tiles) const {
    for (int p = 0; p < parts; ++p) amx::write<form>(of[p], tiles + p * kBlockValues);
  }
};

}  // namespace

template <Form form, int parts, class T>
void pack(const Block<T>& block, bf16* tiles) {
  RowsOfBlock<parts> rows;
  for (std::int64_t r = 0; r < block.rows; ++r) rows.load(r, block.data + r * block.row_stride, block.values);
  rows.clear(block.rows, kBlock);
  rows.template write<form>(tiles);
}

// Nine positions of whole rows of 32 values.
template <Form form, int parts>
void pack_nine(const Block<float>& block, const std::vector<bool>& used, bf16* tiles,
               std::int64_t position_stride) {
  __m512i rows[kNine][parts][32], row[parts];
  __m512 low[kNine] = {}, high[kNine] = {};
  for (std::int64_t r = 0; r < 32; ++r) {
    if (r < block.rows) {
      const float* data = block.data + r * block.row_stride;
      split_nine(data, low);
      split_nine(data + 16 * kNine, high);
    } else {
      std::fill(low, low + kNine, _mm512_setzero_ps());
      std::fill(high, high + kNine, _mm512_setzero_ps());
    }
    for (std::size_t k = 0; k < kNine; ++k) {
      if (!used[k]) continue;
      split(low[k], high[k], row);
      for (int p = 0; p < parts; ++p) rows[k][p][r] = row[p];
    }
  }
  for (std::size_t k = 0; k < kNine; ++k)
    for (int p = 0; p < parts && used[k]; ++p)
      write<form>(rows[k][p], tiles + static_cast<std::int64_t>(k) * position_stride + p * kBlockValues);
}

template <Form form, int parts>
void pack_positions(const Block<float>& block, const std::vector<bool>& used, bf16* tiles,
                    std::int64_t position_stride) {
  const auto positions = static_cast<std::int64_t>(used.size());
  if (positions == kNine && block.values == kBlock)
    return pack_nine<form, parts>(block, used, tiles, position_stride);
  float values[kBlockValues] = {};
  for (std::int64_t k = 0; k < positions; ++k) {
    if (!used[static_cast<std::size_t>(k)]) continue;
    for (std::int64_t r = 0; r < block.rows; ++r)
      for (std::int64_t v = 0; v < block.values; ++v)
        values[r * kBlock + v] = block.data[r * block.row_stride + v * positions + k];
    pack<form, parts>(Block<float>{values, kBlock, block.rows, block.values}, tiles + k * position_stride);
  }
}

void split_values(const float* values, std::int64_t count, bf16* to, std::int64_t part_stride) {
  __m512i parts[kParts<float>];
  for (std::int64_t v = 0; v < count; v += kBlock) {
    load_row(values + v, count - v, parts);
    for (int p = 0; p < kParts<float>; ++p)
      _mm512_mask_storeu_epi16(to + p * part_stride + v, mask_of(count - v), parts[p]);
  }
}

template <Form form, Order order, class T>
Packed pack_images(const T* x, std::int64_t images, std::int64_t pixels, std::int64_t channels) {
  constexpr bool kByPixel = order == Order::by_pixel;
  const Packed packed(blocks(images), kByPixel ? pixels : blocks(channels),
                      kByPixel ? blocks(channels) : pixels, kParts<T>);
  parallel_for(blocks(images) * pixels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t image = i / pixels * kBlock, pixel = i % pixels;
      for (std::int64_t c = 0; c < channels; c += kBlock)
        pack<form, kParts<T>>(
            Block<T>{x + (image * pixels + pixel) * channels + c, pixels * channels,
                     std::min(kBlock, images - image), std::min(kBlock, channels - c)},
            kByPixel ? packed.at(i / pixels, pixel, c / kBlock) : packed.at(i / pixels, c / kBlock, pixel));
    }
  });
  return packed;
}

template <Form form, class T>
Packed pack_pixel_pairs(const T* x, std::int64_t images, std::int64_t pixels, std::int64_t channels,
                        std::span<const PixelPair> pairs) {
  const auto count = static_cast<std::int64_t>(pairs.size()), stride = pixels * channels;
  const Packed packed(half_blocks(images), blocks(channels), count, kParts<T>);
  parallel_for(half_blocks(images) * count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const PixelPair& pair = pairs[static_cast<std::size_t>(i % count)];
      const std::int64_t image = i / count * kTileRows, rows = std::min(kTileRows, images - image);
      for (std::int64_t c = 0; c < channels; c += kBlock) {
        RowsOfBlock<kParts<T>> block;
        for (const std::int64_t half : {0, 1}) {
          const std::int32_t pixel = half == 0 ? pair.first : pair.second;
          const std::int64_t top = half * kTileRows, there = pixel >= 0 ? rows : 0;
          const T* data = x + image * stride + pixel * channels + c;
          for (std::int64_t r = 0; r < there; ++r)
            block.load(top + r, data + r * stride, std::min(kBlock, channels - c));
          block.clear(top + there, top + kTileRows);
        }
        block.template write<form>(packed.at(i / count, c / kBlock, i % count));
      }
    }
  });
  return packed;
}

template <int parts>
Packed pack_weights(const Tensor& w, Target target, const std::vector<bool>& used) {
  const std::int64_t outputs = w.size(0), inputs = w.size(1), positions = w.size(2) * w.size(3);
  const std::int64_t column_blocks = blocks(target == Target::outputs ? outputs : inputs);
  const std::int64_t depth_blocks = blocks(target == Target::outputs ? inputs : outputs);
  const Packed packed(column_blocks, positions, depth_blocks, parts);
  const std::int64_t stride = depth_blocks * packed.block_values();
  parallel_for(column_blocks * depth_blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t column = i / depth_blocks, depth = i % depth_blocks;
      const std::int64_t o = (target == Target::outputs ? column : depth) * kBlock;
      const std::int64_t c = (target == Target::outputs ? depth : column) * kBlock;
      const Block<float> block{w.data<float>() + (o * inputs + c) * positions, inputs * positions,
                               std::min(kBlock, outputs - o), std::min(kBlock, inputs - c)};
      if (target == Target::outputs)
        pack_positions<Form::second_by_row, parts>(block, used, packed.at(column, 0, depth), stride);
      else
        pack_positions<Form::second_by_value, parts>(block, used, packed.at(column, 0, depth), stride);
    }
  });
  return packed;
}

template Packed pack_weights<1>(const Tensor&, Target, const std::vector<bool>&);
template Packed pack_weights<3>(const Tensor&, Target, const std::vector<bool>&);

using Size = std::int64_t;
template Packed pack_images<Form::first_by_row, Order::by_pixel>(const bf16*, Size, Size, Size);
template Packed pack_images<Form::first_by_row, Order::by_pixel>(const float*, Size, Size, Size);
template Packed pack_images<Form::first_by_value, Order::by_channel>(const bf16*, Size, Size, Size);
template Packed pack_images<Form::first_by_value, Order::by_channel>(const float*, Size, Size, Size);
template Packed pack_images<Form::second_by_value, Order::by_channel>(const bf16*, Size, Size, Size);
template Packed pack_images<Form::second_by_value, Order::by_channel>(const float*, Size, Size, Size);

using Pairs = std::span<const PixelPair>;
template Packed pack_pixel_pairs<Form::first_by_value>(const bf16*, Size, Size, Size, Pairs);
template Packed pack_pixel_pairs<Form::first_by_value>(const float*, Size, Size, Size, Pairs);
template Packed pack_pixel_pairs<Form::second_by_value>(const bf16*, Size, Size, Size, Pairs);
template Packed pack_pixel_pairs<Form::second_by_value>(const float*, Size, Size, Size, Pairs);

}  // namespace brigade::cpu::amx
