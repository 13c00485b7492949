// SPDX-License-Identifier: MIT
// data/augment.h - from the bytes of an image to what the network sees, with random crop, flip, cutout and
// noise. Read before: data/dataset.h. Read next: data/batch.h.
#pragma once

#include <array>
#include <cstdint>

#include "core/tensor.h"
#include "data/dataset.h"

namespace brigade::data {

/// All off by default.
struct AugmentOptions {
  std::int64_t crop_padding = 0;  ///< Pad by that many black pixels on each side, then crop 32x32 anywhere.
  bool flip = false;              ///< Mirror left-right every second time.
  std::int64_t cutout = 0;        ///< Side of a square around a random pixel that gets the mean colour.
  double noise_std = 0;           ///< Gaussian noise added to every normalised value.
};

/// The usual CIFAR recipe (He et al., 2015, section 4.2): padding 4 and flips.
inline AugmentOptions standard_augment() { return {.crop_padding = 4, .flip = true}; }

/// What one image undergoes. Pixel (y, x) of the result is pixel (y + dy, x + dx) of the image, or, flipped,
/// pixel (y + dy, 31 - x + dx); outside the image lies black.
struct Placement {
  std::int64_t dy = 0;  ///< In [-crop_padding, crop_padding], as dx.
  std::int64_t dx = 0;
  bool flip = false;
  std::int64_t cutout_y = 0;  ///< Centre of the square, in the result; the square is clipped at the border.
  std::int64_t cutout_x = 0;

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Turns images into normalised f32. A function of (options, normalisation, seed, epoch, sample index) and
/// the image only: the loader thread, rank and batch that an image happens to be in do not matter. Immutable,
/// so threads share one.
class Augmenter {
 public:
  /// Throws Error for options out of range or a standard deviation that is not positive.
  Augmenter(const AugmentOptions& options, const Normalization& normalization, std::uint64_t seed);

  /// What sample `index` undergoes in `epoch`.
  Placement placement(std::int64_t epoch, std::int64_t index) const;

  /// Writes the image (3072 bytes, R G B planes), augmented and normalised, to out[c * strides[0] + y *
  /// strides[1] + x * strides[2]]. The order is: crop and flip (padding is pixel value 0, as in torchvision),
  /// normalise, noise, cutout (with 0, the mean colour; DeVries and Taylor, 2017).
  void apply(const std::uint8_t* image, std::int64_t epoch, std::int64_t index, float* out,
             const std::array<std::int64_t, 3>& strides) const;

  /// f32 [3, 256]: what each byte of a channel becomes.
  Tensor values() const;

 private:
  void add_noise(std::int64_t epoch, std::int64_t index, float* out,
                 const std::array<std::int64_t, 3>& strides) const;
  void cut_out(const Placement& at, float* out, const std::array<std::int64_t, 3>& strides) const;

  AugmentOptions options_;
  std::uint64_t seed_;
  // Normalised value of each byte: exact in double, rounded once, and faster than computing it.
  std::array<std::array<float, 256>, 3> table_;
};

}  // namespace brigade::data
