// SPDX-License-Identifier: MIT
// dist/hooks/topk.cpp - of each rank's bucket only the elements of the largest magnitude travel, with their indices;
// the others are added to the next step's gradient (Stich, Cordonnier and Jaggi 2018, arXiv 1809.07599; Lin et al.
// 2017, arXiv 1712.01887). Which elements are the largest is asked by bucket: other plans give other results.
// Read before: dist/comm_hook.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "dist/hooks/hooks.h"
#include "dist/scale.h"

namespace brigade::dist {
namespace {

// Finite floats without their sign are in the order of their bits.
std::uint32_t magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

class TopK final : public CommHook {
 public:
  TopK(const optim::FlatParameters& parameters, double fraction)
      : fraction_(fraction), errors_(parameters.make_buffer()), histogram_(std::size_t{1} << 16) {}

  HookReport mean(HookBucket& bucket, Transport& transport) override {
    const std::int64_t count = bucket.gradients.numel();
    if (count == 0) return {};
    BRIGADE_CHECK(count <= std::numeric_limits<std::int32_t>::max(),
                  "comm hook topk: a bucket must have fewer than 2^31 elements; got ", count);
    const std::int64_t k = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(std::ceil(fraction_ * static_cast<double>(count))), 1, count);
    float* const x = bucket.gradients.data<float>();
    float* const errors = bucket.of(errors_).data<float>();

    // A message is k indices, then the k values' bits.
    Tensor mine = scratch(mine_, 2 * k, DType::i32),
           all = scratch(all_, 2 * k * transport.size(), DType::i32);
    std::int32_t* const indices = mine.data<std::int32_t>();
    float* const values = reinterpret_cast<float*>(indices + k);
    if (all_finite(bucket.gradients)) {
      for (std::int64_t i = 0; i < count; ++i) x[i] += errors[i];
      select(x, count, k, indices);
      for (std::int64_t i = 0; i < k; ++i) values[i] = x[indices[i]];
    } else {
      std::fill_n(indices, k, 0);
      std::fill_n(values, k, std::numeric_limits<float>::quiet_NaN());
    }
    transport.all_gather(mine, all);

    const auto values_of = [&](int rank) {
      return reinterpret_cast<const float*>(all.data<std::int32_t>() + (2 * rank + 1) * k);
    };
    for (int rank = 0; rank < transport.size(); ++rank)
      if (std::isnan(values_of(rank)[0])) {
        fill_nan(bucket);
        return {.wire_bytes = mine.bytes()};
      }
    for (std::int64_t i = 0; i < count; ++i) {
      errors[i] = x[i];
      x[i] = 0;
    }
    for (std::int64_t i = 0; i < k; ++i) errors[indices[i]] = 0;
    const float by_size = 1 / static_cast<float>(transport.size());
    for (int rank = 0; rank < transport.size(); ++rank) {
      const std::int32_t* at = all.data<std::int32_t>() + 2 * rank * k;
      for (std::int64_t i = 0; i < k; ++i) x[at[i]] += values_of(rank)[i] * by_size;
    }
    return {.wire_bytes = mine.bytes()};
  }

  NamedTensors state(const optim::FlatParameters& parameters) override {
    NamedTensors out;
    append_state(out, "error", parameters, errors_);
    return out;
  }

 private:
  // Indices, ascending, of the k largest magnitudes; of equal ones those of the lower index. Two counts find the k-th
  // largest: one of the upper 16 bits, one of the lower 15 bits where the upper ones are those of the k-th.
  void select(const float* x, std::int64_t count, std::int64_t k, std::int32_t* indices) {
    std::int64_t missing = k;
    std::fill(histogram_.begin(), histogram_.end(), 0);
    for (std::int64_t i = 0; i < count; ++i) ++histogram_[magnitude(x[i]) >> 15];
    const std::uint32_t upper = descend(missing);
    collect(x, count, upper << 15);

    std::fill(histogram_.begin(), histogram_.end(), 0);
    for (const std::int32_t i : candidates_)
      if (magnitude(x[i]) >> 15 == upper) ++histogram_[magnitude(x[i]) & 0x7fffu];
    const std::uint32_t smallest = upper << 15 | descend(missing);
    for (const std::int32_t i : candidates_)
      if (magnitude(x[i]) > smallest || (magnitude(x[i]) == smallest && missing-- > 0)) *indices++ = i;
  }

  // candidates_ = indices of magnitudes of at least `bound`: few. One branch for a vector of elements.
  void collect(const float* x, std::int64_t count, std::uint32_t bound) {
    constexpr std::int64_t kLanes = 32;
    candidates_.clear();
    for (std::int64_t begin = 0; begin < count; begin += kLanes) {
      const std::int64_t end = std::min(begin + kLanes, count);
      std::uint32_t largest = 0;
      if (end - begin == kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane)
          largest = std::max(largest, magnitude(x[begin + lane]));
      if (end - begin == kLanes && largest < bound) continue;
      for (std::int64_t i = begin; i < end; ++i)
        if (magnitude(x[i]) >= bound) candidates_.push_back(static_cast<std::int32_t>(i));
    }
  }

  // The bin that holds the `missing`-th from above; `missing` becomes how many of that bin are wanted.
  std::uint32_t descend(std::int64_t& missing) const {
    std::uint32_t bin = static_cast<std::uint32_t>(histogram_.size()) - 1;
    for (; histogram_[bin] < missing; --bin) missing -= histogram_[bin];
    return bin;
  }

  double fraction_;
  optim::FlatBuffer errors_;
  std::vector<std::int32_t> histogram_, candidates_;
  Tensor mine_, all_;
};

}  // namespace

std::unique_ptr<CommHook> make_topk(const optim::FlatParameters& parameters, const HookOptions& options) {
  check_f32("topk", parameters);
  BRIGADE_CHECK(options.fraction > 0 && options.fraction <= 1,
                "comm hook topk: the fraction must lie in (0, 1]; got ", options.fraction);
  return std::make_unique<TopK>(parameters, options.fraction);
}

}  // namespace brigade::dist
