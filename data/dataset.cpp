// SPDX-License-Identifier: MIT
// data/dataset.cpp - checks and statistics of a data set.
#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/checksum.h"

namespace brigade::data {

std::string describe(const Split& split) {
  return str(split.source, ": ", split.train.size(), " training and ", split.test.size(), " test images, ",
             split.train.classes, " classes");
}

std::string labels_checksum(const Dataset& set) {
  Checksum128 sum;
  sum.update(std::as_bytes(std::span(set.labels)));
  return sum.hex();
}

void check_dataset(std::string_view op, const Dataset& set) {
  BRIGADE_CHECK(set.size() >= 1, op, ": needs at least one image; got an empty data set");
  BRIGADE_CHECK(set.images.defined() && set.images.dtype() == DType::u8 && set.images.is_contiguous() &&
                    set.images.shape() == Shape({set.size(), kChannels, kSide, kSide}),
                op, ": needs contiguous images u8 [", set.size(), ", 3, 32, 32], one per label; got ",
                set.images);
  const auto largest = *std::max_element(set.labels.begin(), set.labels.end());
  BRIGADE_CHECK(largest < set.classes, op, ": labels must be below the number of classes, ", set.classes,
                "; got ", static_cast<int>(largest));
}

Normalization measure(const Tensor& images) {
  BRIGADE_CHECK(images.defined() && images.dtype() == DType::u8 && images.dims() == 4 &&
                    images.size(1) == kChannels && images.size(2) == kSide && images.size(3) == kSide &&
                    images.is_contiguous() && images.numel() > 0,
                "measure: needs contiguous images u8 [N, 3, 32, 32]; got ", images);
  Normalization result;
  const std::uint8_t* bytes = images.data<std::uint8_t>();
  for (std::size_t c = 0; c < 3; ++c) {
    // 255² x 1024 x N fits 64 bits for any N that fits memory.
    std::uint64_t sum = 0, sum_of_squares = 0;
    for (std::int64_t n = 0; n < images.size(0); ++n) {
      const std::uint8_t* plane = bytes + n * kImageBytes + static_cast<std::int64_t>(c) * kPlane;
      std::uint32_t plane_sum = 0, plane_squares = 0;
      for (std::int64_t i = 0; i < kPlane; ++i) {
        plane_sum += plane[i];
        plane_squares += std::uint32_t{plane[i]} * plane[i];
      }
      sum += plane_sum;
      sum_of_squares += plane_squares;
    }
    const double count = static_cast<double>(images.size(0) * kPlane);
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(sum_of_squares) / count - mean * mean;
    result.mean[c] = mean / 255;
    result.std[c] = variance > 0 ? std::sqrt(variance) / 255 : 1.0;
  }
  return result;
}

}  // namespace brigade::data
