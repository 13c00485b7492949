// SPDX-License-Identifier: MIT
// data/synthetic.h - a CIFAR that needs no download: coloured waves, one mixture a class, under Gaussian
// noise. Read before: data/dataset.h, data/random_streams.h.
#pragma once

#include <cstdint>

#include "data/dataset.h"

namespace brigade::data {

struct SyntheticOptions {
  std::int64_t train = 50'000;
  std::int64_t test = 10'000;
  int classes = 10;
  std::uint64_t seed = 0;
  double noise_std = 0.25;  ///< Of the pixel noise, where black is 0 and white is 1.
};

/// Images that can be learned but not by a look at single pixels: each class is a fixed sum of low-frequency
/// waves in each colour; an image is its class's picture, shifted by up to 6 pixels, with a contrast of its
/// own, plus Gaussian noise, clipped to a byte. Labels are uniform.
///
/// Image i of either set is a function of (seed, set, i, classes, noise_std) only, so a smaller set is the
/// beginning of a larger one. Training and test images share the class pictures and draw everything else from
/// disjoint random streams. Normalisation is measured on the training images.
Split make_synthetic(const SyntheticOptions& options = {});

}  // namespace brigade::data
