// SPDX-License-Identifier: MIT
// data/dataset.h - labelled 32x32 colour images in memory, and how their pixels are normalised.
// Read next: data/cifar10.h and data/synthetic.h (where they come from), data/sampler.h (who sees which).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace brigade::data {

inline constexpr std::int64_t kChannels = 3;
inline constexpr std::int64_t kSide = 32;
inline constexpr std::int64_t kPlane = kSide * kSide;            ///< Pixels of one colour.
inline constexpr std::int64_t kImageBytes = kChannels * kPlane;  ///< 3072: R, then G, then B, row-major.

/// What the network sees of pixel p in channel c is (p / 255 - mean[c]) / std[c].
struct Normalization {
  std::array<double, 3> mean{0, 0, 0};
  std::array<double, 3> std{1, 1, 1};
};

/// Images as the bytes they have on disk (3 KiB each: all of CIFAR-10 is 176 MiB) and their labels. Copying
/// copies the labels and shares the images.
struct Dataset {
  Tensor images{};                     ///< u8 [N, 3, 32, 32], contiguous
  std::vector<std::uint8_t> labels{};  ///< N values in [0, classes)
  int classes = 0;
  Normalization normalization{};  ///< Of the training set, also on test images.

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

/// A training set, the test set that belongs to it, and where both come from.
struct Split {
  Dataset train{};
  Dataset test{};
  std::string source{};  ///< "CIFAR-10 from DIR" or "synthetic CIFAR, seed 0"
};

/// "CIFAR-10 from DIR: 50000 training and 10000 test images, 10 classes": the line a program prints.
std::string describe(const Split& split);

/// XXH3-128 of the labels in order, in hex: tells one set from another.
std::string labels_checksum(const Dataset& set);

/// Throws Error naming `op` unless `set` has at least one image, as many labels, and the documented layout.
void check_dataset(std::string_view op, const Dataset& set);

/// Mean and standard deviation (over all pixels of a channel) of images u8 [N, 3, 32, 32],
/// scaled to [0, 1]. Exact integer sums, so the result does not depend on the order of images. A
/// channel without contrast gets std 1.
Normalization measure(const Tensor& images);

}  // namespace brigade::data
