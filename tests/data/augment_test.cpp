// SPDX-License-Identifier: MIT
// tests/data/augment_test.cpp - case A16, and every transformation against a naive one.
#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/rng.h"
#include "data/random_streams.h"
#include "tests/support/test.h"

using namespace brigade;
using namespace brigade::data;

namespace {

constexpr Normalization kCifar10{{.49139968, .48215841, .44653091}, {.24703223, .24348513, .26158784}};
constexpr std::array<std::int64_t, 3> kPlanar{1024, 32, 1}, kChannelsLast{1, 96, 3};

std::vector<std::uint8_t> random_image(std::uint64_t seed) {
  std::vector<std::uint8_t> image(3072);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>(philox(seed, 0, i)[0]);
  return image;
}

std::vector<float> apply(const Augmenter& augmenter, const std::vector<std::uint8_t>& image,
                         std::int64_t epoch, std::int64_t index,
                         const std::array<std::int64_t, 3>& strides = kPlanar) {
  std::vector<float> out(3072);
  augmenter.apply(image.data(), epoch, index, out.data(), strides);
  return out;
}

// As torchvision does it, step by step: pad with black, crop, flip, scale, normalise.
std::vector<float> naive(const std::vector<std::uint8_t>& image, const Placement& at, std::size_t padding) {
  const std::size_t side = 32 + 2 * padding;
  std::vector<float> out;
  for (std::size_t c = 0; c < 3; ++c) {
    std::vector<std::uint8_t> padded(side * side, 0);
    for (std::size_t y = 0; y < 32; ++y)
      for (std::size_t x = 0; x < 32; ++x)
        padded[(y + padding) * side + x + padding] = image[c * 1024 + y * 32 + x];
    const auto top = static_cast<std::size_t>(at.dy + static_cast<std::int64_t>(padding));
    const auto left = static_cast<std::size_t>(at.dx + static_cast<std::int64_t>(padding));
    for (std::size_t y = 0; y < 32; ++y)
      for (std::size_t x = 0; x < 32; ++x) {
        const std::size_t column = at.flip ? 31 - x : x;
        const double pixel = padded[(y + top) * side + column + left];
        out.push_back(static_cast<float>((pixel / 255 - kCifar10.mean[c]) / kCifar10.std[c]));
      }
  }
  return out;
}

}  // namespace

TEST_CASE("normalisation has the digits computed by hand", "[data][augment]") {
  std::vector<std::uint8_t> image(3072, 0);
  image[1] = 255;            // red, row 0, column 1
  image[1024 + 33] = 128;    // green, row 1, column 1
  image[2048 + 1023] = 200;  // blue, the last
  const auto out = apply(Augmenter({}, kCifar10, 0), image, 0, 0);
  const auto near = [](double value) { return Catch::Matchers::WithinAbs(value, 1e-6); };
  REQUIRE_THAT(out[0], near(-1.98921282));  // (0 - .49139968) / .24703223
  REQUIRE_THAT(out[1], near(2.05884196));   // (1 - .49139968) / .24703223
  REQUIRE_THAT(out[1024], near(-1.98023760));
  REQUIRE_THAT(out[1024 + 33], near(0.08132889));    // (128/255 - .48215841) / .24348513
  REQUIRE_THAT(out[2048 + 1023], near(1.29127874));  // (200/255 - .44653091) / .26158784
}

TEST_CASE("crop and flip equal pad, crop and mirror done naively", "[data][augment]") {
  const std::int64_t padding = GENERATE(0, 1, 4, 32);
  const Augmenter augmenter({.crop_padding = padding, .flip = true}, kCifar10, 3);
  for (std::int64_t index = 0; index < 200; ++index) {
    const auto image = random_image(static_cast<std::uint64_t>(index));
    const auto expected = naive(image, augmenter.placement(2, index), static_cast<std::size_t>(padding));
    REQUIRE(apply(augmenter, image, 2, index) == expected);
  }
}

TEST_CASE("memory order does not change the values", "[data][augment]") {
  const Augmenter augmenter({.crop_padding = 4, .flip = true, .cutout = 8, .noise_std = 0.1}, kCifar10, 3);
  const auto image = random_image(1);
  const auto planar = apply(augmenter, image, 1, 5), last = apply(augmenter, image, 1, 5, kChannelsLast);
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < 1024; ++i) REQUIRE(planar[c * 1024 + i] == last[i * 3 + c]);
}

TEST_CASE("augmentation is a function of seed, epoch and index, and varies with each",
          "[data][augment][A16]") {
  const Augmenter augmenter(standard_augment(), kCifar10, 7), same(standard_augment(), kCifar10, 7),
      other(standard_augment(), kCifar10, 8);
  const int count = 2000;
  int epochs_agree = 0, neighbours_agree = 0, seeds_agree = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto crop = [&](const Augmenter& a, std::int64_t epoch, std::int64_t index) {
      const Placement at = a.placement(epoch, index);
      return std::tuple(at.dy, at.dx, at.flip);
    };
    REQUIRE(crop(augmenter, 0, i) == crop(same, 0, i));
    epochs_agree += crop(augmenter, 0, i) == crop(augmenter, 1, i);
    neighbours_agree += crop(augmenter, 0, i) == crop(augmenter, 0, i + 1);
    seeds_agree += crop(augmenter, 0, i) == crop(other, 0, i);
  }
  // Chance: one in 9 x 9 x 2 = 162, that is 12.3 of 2000 with a standard deviation of 3.5.
  for (const int agree : {epochs_agree, neighbours_agree, seeds_agree}) REQUIRE(agree <= 12 + 5 * 4);
}

TEST_CASE("all 81 crops and both flips occur about equally often", "[data][augment]") {
  const Augmenter augmenter(standard_augment(), kCifar10, 7);
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, int> count;
  for (std::int64_t i = 0; i < 16'200; ++i) {
    const Placement at = augmenter.placement(0, i);
    ++count[{at.dy, at.dx, at.flip}];
  }
  REQUIRE(count.size() == 162);
  for (const auto& [at, times] : count) REQUIRE(std::abs(times - 100) < 60);  // standard deviation 10
}

TEST_CASE("options that are off change nothing, whatever the seed", "[data][augment]") {
  const auto image = random_image(4);
  REQUIRE(apply(Augmenter({}, kCifar10, 1), image, 0, 0) == apply(Augmenter({}, kCifar10, 2), image, 9, 9));
  // Turning on cutout or noise leaves the crops alone.
  const AugmentOptions all{.crop_padding = 4, .flip = true, .cutout = 8, .noise_std = 1};
  const Augmenter some(standard_augment(), kCifar10, 1), more(all, kCifar10, 1);
  for (std::int64_t i = 0; i < 50; ++i) REQUIRE(some.placement(3, i) == more.placement(3, i));
}

TEST_CASE("cutout sets one clipped square of all channels to zero", "[data][augment]") {
  const Augmenter with({.cutout = 8}, kCifar10, 1), without({}, kCifar10, 1);
  std::set<std::int64_t> areas;
  for (std::int64_t index = 0; index < 100; ++index) {
    const auto image = random_image(9);
    const auto cut = apply(with, image, 0, index), whole = apply(without, image, 0, index);
    const Placement at = with.placement(0, index);
    std::int64_t area = 0;
    for (std::int64_t i = 0; i < 3072; ++i) {
      const std::int64_t y = i / 32 % 32 - at.cutout_y, x = i % 32 - at.cutout_x;
      const bool inside = y >= -4 && y < 4 && x >= -4 && x < 4;
      area += inside;
      REQUIRE(cut[static_cast<std::size_t>(i)] == (inside ? 0.0f : whole[static_cast<std::size_t>(i)]));
    }
    areas.insert(area);
  }
  REQUIRE(*areas.rbegin() == 3 * 64);  // Some are whole,
  REQUIRE(*areas.begin() < 3 * 64);    // some are clipped.
}

TEST_CASE("noise has the asked mean and deviation and repeats for the same sample only", "[data][augment]") {
  const Augmenter with({.noise_std = 0.5}, kCifar10, 1), without({}, kCifar10, 1);
  const auto image = random_image(9);
  const auto clean = apply(without, image, 0, 0);
  double sum = 0, squares = 0;
  const int images = 20;
  for (std::int64_t index = 0; index < images; ++index) {
    const auto noisy = apply(with, image, 0, index);
    REQUIRE(noisy == apply(with, image, 0, index));
    REQUIRE(noisy != apply(with, image, 0, index + 1));
    REQUIRE(noisy != apply(with, image, 1, index));
    for (std::size_t i = 0; i < 3072; ++i) {
      const double noise = noisy[i] - clean[i];
      sum += noise;
      squares += noise * noise;
    }
  }
  // 61,440 values: the mean's standard error is 0.5 / 248 = 0.002, the deviation's 0.0014.
  const double count = images * 3072;
  REQUIRE(std::abs(sum / count) < 0.01);
  REQUIRE(std::abs(std::sqrt(squares / count) - 0.5) < 0.007);
}

TEST_CASE("normal numbers in bulk are normal, and any piece of the sequence can be had alone",
          "[data][augment]") {
  std::vector<float> all(80'000), piece(16);
  fill_normal(3, 4, 0, all);
  fill_normal(3, 4, 640, piece);
  REQUIRE(std::equal(piece.begin(), piece.end(), all.begin() + 640));
  // Probability below -2, -1, 0, 1, 2; the standard error of a share of 80,000 is at most 0.0018.
  for (const float limit : {-2.0f, -1.0f, 0.0f, 1.0f, 2.0f}) {
    const auto below = std::count_if(all.begin(), all.end(), [&](float x) { return x < limit; });
    const double expected = std::erfc(-limit * std::sqrt(0.5)) / 2;
    REQUIRE(std::abs(static_cast<double>(below) / 80'000 - expected) < 0.008);
  }
  REQUIRE(*std::max_element(all.begin(), all.end()) > 3.5f);
  // Neighbours, which share random words, do not move together.
  double product = 0;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) product += all[i] * all[i + 1];
  REQUIRE(std::abs(product / 80'000) < 0.018);  // standard error 0.0035
  REQUIRE_THROWS_WITH(fill_normal(3, 4, 4, piece), ContainsSubstring("got first 4"));
}

TEST_CASE("the augmenter refuses options out of range", "[data][augment][error]") {
  REQUIRE_THROWS_WITH(Augmenter({.crop_padding = -1}, kCifar10, 0), ContainsSubstring("0 to 32; got -1"));
  REQUIRE_THROWS_WITH(Augmenter({.cutout = 33}, kCifar10, 0), ContainsSubstring("0 to 32; got 33"));
  REQUIRE_THROWS_WITH(Augmenter({.noise_std = -0.5}, kCifar10, 0), ContainsSubstring("got -0.5"));
  REQUIRE_THROWS_WITH(Augmenter({}, Normalization{{0, 0, 0}, {1, 0, 1}}, 0),
                      ContainsSubstring("must be positive"));
}
