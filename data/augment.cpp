// SPDX-License-Identifier: MIT
// data/augment.cpp - one pass from bytes to floats; noise and cutout on top when asked for.
#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "data/random_streams.h"

namespace brigade::data {

Augmenter::Augmenter(const AugmentOptions& options, const Normalization& normalization, std::uint64_t seed)
    : options_(options), seed_(seed) {
  BRIGADE_CHECK(options.crop_padding >= 0 && options.crop_padding <= kSide,
                "augment: crop_padding must be 0 to 32; got ", options.crop_padding);
  BRIGADE_CHECK(options.cutout >= 0 && options.cutout <= kSide, "augment: cutout must be 0 to 32; got ",
                options.cutout);
  BRIGADE_CHECK(options.noise_std >= 0 && std::isfinite(options.noise_std),
                "augment: noise_std must be 0 or more; got ", options.noise_std);
  for (std::size_t c = 0; c < 3; ++c) {
    BRIGADE_CHECK(normalization.std[c] > 0, "augment: normalisation std must be positive; got ",
                  normalization.std[c]);
    for (std::size_t p = 0; p < 256; ++p)
      table_[c][p] =
          static_cast<float>((static_cast<double>(p) / 255 - normalization.mean[c]) / normalization.std[c]);
  }
}

Placement Augmenter::placement(std::int64_t epoch, std::int64_t index) const {
  // One block decides everything; words are used for the same thing whatever is switched on, so that turning
  // on cutout does not change the crops.
  const auto words =
      philox(seed_, stream_of(Purpose::augment_placement, epoch), static_cast<std::uint64_t>(index));
  const auto offsets = static_cast<std::uint32_t>(2 * options_.crop_padding + 1);
  return {.dy = static_cast<std::int64_t>(words[0] % offsets) - options_.crop_padding,
          .dx = static_cast<std::int64_t>(words[1] % offsets) - options_.crop_padding,
          .flip = options_.flip && (words[2] & 1) != 0,
          .cutout_y = static_cast<std::int64_t>(words[3] & 0xffff) % kSide,
          .cutout_x = static_cast<std::int64_t>(words[3] >> 16) % kSide};
}

Tensor Augmenter::values() const {
  std::vector<float> all;
  for (const auto& channel : table_) all.insert(all.end(), channel.begin(), channel.end());
  return Tensor::from(all, {3, 256});
}

void Augmenter::apply(const std::uint8_t* image, std::int64_t epoch, std::int64_t index, float* out,
                      const std::array<std::int64_t, 3>& strides) const {
  const Placement at = placement(epoch, index);
  // Columns [begin, end) of the result before flipping come from the image; the others are padding.
  const std::int64_t begin = std::max<std::int64_t>(0, -at.dx), end = std::min(kSide, kSide - at.dx);
  const std::int64_t first = at.flip ? kSide - 1 : 0, forward = at.flip ? -strides[2] : strides[2];
  for (std::int64_t c = 0; c < kChannels; ++c) {
    const auto& table = table_[static_cast<std::size_t>(c)];
    for (std::int64_t y = 0; y < kSide; ++y) {
      float* row = out + c * strides[0] + y * strides[1] + first * strides[2];
      const std::int64_t source_y = y + at.dy;
      const bool inside = source_y >= 0 && source_y < kSide;
      const std::int64_t from = inside ? std::min(begin, kSide) : kSide,
                         to = inside ? std::max(end, from) : kSide;
      for (std::int64_t x = 0; x < from; ++x) row[x * forward] = table[0];
      const std::int64_t source = c * kPlane + source_y * kSide + at.dx;
      for (std::int64_t x = from; x < to; ++x) row[x * forward] = table[image[source + x]];
      for (std::int64_t x = to; x < kSide; ++x) row[x * forward] = table[0];
    }
  }
  if (options_.noise_std > 0) add_noise(epoch, index, out, strides);
  if (options_.cutout > 0) cut_out(at, out, strides);
}

void Augmenter::add_noise(std::int64_t epoch, std::int64_t index, float* out,
                          const std::array<std::int64_t, 3>& strides) const {
  std::array<float, kImageBytes> noise;
  fill_normal(seed_, stream_of(Purpose::augment_noise, epoch),
              static_cast<std::uint64_t>(index * kImageBytes), noise);
  const auto scale = static_cast<float>(options_.noise_std);
  for (std::int64_t i = 0; i < kImageBytes; ++i)
    out[i / kPlane * strides[0] + i / kSide % kSide * strides[1] + i % kSide * strides[2]] +=
        scale * noise[static_cast<std::size_t>(i)];
}

void Augmenter::cut_out(const Placement& at, float* out, const std::array<std::int64_t, 3>& strides) const {
  const std::int64_t top = at.cutout_y - options_.cutout / 2, left = at.cutout_x - options_.cutout / 2;
  for (std::int64_t c = 0; c < kChannels; ++c)
    for (std::int64_t y = std::max<std::int64_t>(0, top); y < std::min(kSide, top + options_.cutout); ++y)
      for (std::int64_t x = std::max<std::int64_t>(0, left); x < std::min(kSide, left + options_.cutout); ++x)
        out[c * strides[0] + y * strides[1] + x * strides[2]] = 0;
}

}  // namespace brigade::data
