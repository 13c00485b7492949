// SPDX-License-Identifier: MIT
// data/synthetic.cpp - class pictures, then images from them.
#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/parallel.h"
#include "core/rng.h"
#include "data/random_streams.h"

namespace brigade::data {
namespace {

constexpr int kWaves = 3;
constexpr std::int64_t kLargestShift = 6;

using Picture = std::array<float, kImageBytes>;  // One class: values in [-1, 1], periodic in x and y.

// All colours of a class share its wave vectors and differ in phase and weight:
// structure in space and in colour.
Picture make_picture(std::uint64_t seed, int label) {
  const std::uint64_t stream = stream_of(Purpose::synthetic_pattern, label);
  Picture picture{};
  for (int wave = 0; wave < kWaves; ++wave) {
    const auto vector = philox(seed, stream, static_cast<std::uint64_t>(wave));
    // 1 to 3 periods down the image and up to 2 across: whole numbers, so that shifting wraps around.
    const int down = 1 + static_cast<int>(vector[0] % 3), across = static_cast<int>(vector[1] % 5) - 2;
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const auto colour = philox(seed, stream, static_cast<std::uint64_t>(kWaves + wave * kChannels + c));
      const double phase = 2 * std::numbers::pi * uniform01(colour[0]);
      const double weight = (0.4 + 0.6 * uniform01(colour[1])) / kWaves;
      for (std::int64_t i = 0; i < kPlane; ++i) {
        const double turns = static_cast<double>(down * (i / kSide) + across * (i % kSide)) / kSide;
        picture[static_cast<std::size_t>(c * kPlane + i)] +=
            static_cast<float>(weight * std::cos(2 * std::numbers::pi * turns + phase));
      }
    }
  }
  return picture;
}

void make_image(const SyntheticOptions& options, std::span<const Picture> pictures, std::uint64_t stream,
                std::uint8_t* image, std::uint8_t* label) {
  // Block 0 of the stream decides about the image, the blocks after it are its noise.
  const auto words = philox(options.seed, stream, 0);
  *label = static_cast<std::uint8_t>(words[0] % static_cast<std::uint32_t>(options.classes));
  const auto shift = [](std::uint32_t word) {
    return static_cast<std::int64_t>(word % (2 * kLargestShift + 1)) - kLargestShift + kSide;
  };
  const std::int64_t dy = shift(words[1]), dx = shift(words[2]);
  const float contrast = 0.3f + 0.4f * uniform01(words[3]);
  const auto noise_std = static_cast<float>(options.noise_std);

  std::array<float, kImageBytes> noise;
  fill_normal(options.seed, stream, 8, noise);
  const Picture& picture = pictures[*label];
  for (std::int64_t i = 0; i < kImageBytes; ++i) {
    const std::int64_t c = i / kPlane, y = i / kSide % kSide, x = i % kSide;
    const std::int64_t from = c * kPlane + (y + dy) % kSide * kSide + (x + dx) % kSide;
    const float value = 0.5f + contrast * picture[static_cast<std::size_t>(from)] +
                        noise_std * noise[static_cast<std::size_t>(i)];
    image[i] = static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0f, 1.0f) * 255.0f));
  }
}

Dataset make_set(const SyntheticOptions& options, std::span<const Picture> pictures, Purpose purpose,
                 std::int64_t count) {
  Dataset set;
  set.images = Tensor::empty({count, kChannels, kSide, kSide}, DType::u8);
  set.labels.resize(static_cast<std::size_t>(count));
  set.classes = options.classes;
  std::uint8_t* images = set.images.data<std::uint8_t>();
  parallel_for(count, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      make_image(options, pictures, stream_of(purpose, i), images + i * kImageBytes,
                 &set.labels[static_cast<std::size_t>(i)]);
  });
  return set;
}

}  // namespace

Split make_synthetic(const SyntheticOptions& options) {
  BRIGADE_CHECK(options.train >= 1 && options.test >= 1,
                "synthetic: needs at least one image in each set; got train ", options.train, ", test ",
                options.test);
  BRIGADE_CHECK(options.classes >= 1 && options.classes <= 256, "synthetic: classes must be 1 to 256; got ",
                options.classes);
  BRIGADE_CHECK(options.noise_std >= 0 && std::isfinite(options.noise_std),
                "synthetic: noise_std must be 0 or more; got ", options.noise_std);
  std::vector<Picture> pictures;
  for (int label = 0; label < options.classes; ++label) pictures.push_back(make_picture(options.seed, label));

  Split split{.train = make_set(options, pictures, Purpose::synthetic_train, options.train),
              .test = make_set(options, pictures, Purpose::synthetic_test, options.test),
              .source = str("synthetic CIFAR, seed ", options.seed)};
  split.train.normalization = split.test.normalization = measure(split.train.images);
  return split;
}

}  // namespace brigade::data
