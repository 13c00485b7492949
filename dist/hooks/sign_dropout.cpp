// SPDX-License-Identifier: MIT
// dist/hooks/sign_dropout.cpp - for a trunk that several tasks share, where each rank is a task: gradients of both
// signs pull an element to and fro, so only those of one sign are kept, drawn with its share of all magnitudes (Chen et
// al. 2020, "Just pick a sign", arXiv 2010.06808). The expected result is the mean.
//
// What is drawn is a function of seed, step and the element's place in the flat order: all ranks draw alike, under
// every bucket plan. Twice as many bytes as without a hook. Read before: dist/comm_hook.h, core/rng.h.
#include <algorithm>
#include <limits>

#include "core/rng.h"
#include "dist/hooks/hooks.h"

namespace brigade::dist {
namespace {

class SignDropout final : public CommHook {
 public:
  explicit SignDropout(std::uint64_t seed) : seed_(seed) {}

  HookReport mean(HookBucket& bucket, Transport& transport) override {
    const std::int64_t count = bucket.gradients.numel();
    float* const x = bucket.gradients.data<float>();
    Tensor sums = scratch(sums_, 2 * count);
    float* const positive = sums.data<float>();
    float* const negative = positive + count;
    for (std::int64_t i = 0; i < count; ++i) {
      positive[i] = std::max(x[i], 0.0f);  // A NaN is its own maximum and minimum here.
      negative[i] = std::min(x[i], 0.0f);
    }
    transport.all_reduce(sums, Reduce::sum);

    const float size = static_cast<float>(transport.size());
    const std::int64_t first = bucket.flat_begin();
    float drawn[kBlock];
    for (std::int64_t begin = 0; begin < count;) {
      // Blocks end where blocks of the flat order do.
      const std::int64_t skipped = (first + begin) % kBlock, n = std::min(kBlock - skipped, count - begin);
      draw(bucket.step, (first + begin) / kBlock, drawn);
      for (std::int64_t i = begin; i < begin + n; ++i) {
        const float all = positive[i] - negative[i];  // sum |g|
        // P = (1 + sum g / sum |g|) / 2 = positive / sum |g|
        const float kept = drawn[skipped + i - begin] < positive[i] / all ? positive[i] : negative[i];
        // What is not finite stays visible.
        x[i] = (all <= std::numeric_limits<float>::max() ? kept : all) / size;
      }
      begin += n;
    }
    return {.wire_bytes = sums.bytes()};
  }

 private:
  static constexpr std::int64_t kBlock = 1024;

  // The numbers of block `block`; word w of the j-th call is element w * kBlock / 4 + j, so that the loop is one of
  // vectors.
  void draw(std::int64_t step, std::int64_t block, float* drawn) const {
    constexpr std::int64_t kCalls = kBlock / 4;
    for (std::int64_t j = 0; j < kCalls; ++j) {
      const auto words =
          philox(seed_, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(block * kCalls + j));
      for (std::int64_t w = 0; w < 4; ++w)
        drawn[w * kCalls + j] = uniform01(words[static_cast<std::size_t>(w)]);
    }
  }

  std::uint64_t seed_;
  Tensor sums_;
};

}  // namespace

std::unique_ptr<CommHook> make_sign_dropout(const optim::FlatParameters& parameters,
                                            const HookOptions& options) {
  check_f32("sign_dropout", parameters);
  return std::make_unique<SignDropout>(options.seed);
}

}  // namespace brigade::dist
