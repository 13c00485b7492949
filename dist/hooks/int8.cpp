// SPDX-License-Identifier: MIT
// dist/hooks/int8.cpp - whole numbers from -127 to 127 times one scale a bucket and rank, rounded to nearest even and
// summed in f32. The mean is encoded again, with a scale for each rank's slice. Scales are those of a bucket: other
// plans give other results. Magnitudes below 1.5e-36 become zero. Read before: dist/hooks/sliced_mean.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "dist/hooks/hooks.h"
#include "dist/hooks/sliced_mean.h"

namespace brigade::dist {
namespace {

class Int8Encoding final : public Encoding {
 public:
  int bits() const override { return 8; }

  float scale(const float* x, std::int64_t count, std::int64_t) const override {
    // Magnitudes in the order of their bits: infinity lies above all numbers, NaN above infinity.
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i)
      largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
    return largest < 0x7f800000u ? std::bit_cast<float>(largest) / 127
                                 : std::numeric_limits<float>::quiet_NaN();
  }

  void encode(const float* x, std::int64_t count, float scale, std::byte* out) const override {
    if (!(scale >= std::numeric_limits<float>::min())) {  // 1 / scale would not be a number.
      std::memset(out, 0, static_cast<std::size_t>(count));
      return;
    }
    std::int8_t* to = reinterpret_cast<std::int8_t*>(out);
    const float per_scale = 1 / scale;
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(std::nearbyint(x[i] * per_scale)));
  }

  void decode(const std::byte* in, std::int64_t count, float scale, float* x) const override {
    const std::int8_t* from = reinterpret_cast<const std::int8_t*>(in);
    for (std::int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(from[i]) * scale;
  }
};

class Int8 final : public CommHook {
 public:
  HookReport mean(HookBucket& bucket, Transport& transport) override {
    const HookReport report{.wire_bytes = mean_(Int8Encoding(), bucket.gradients, bucket.gradients.numel(),
                                                static_cast<float>(transport.size()), transport)};
    clear_gaps(bucket, bucket.gradients);  // A scale of NaN makes NaN of zeros, too.
    return report;
  }

 private:
  SlicedMean mean_;
};

}  // namespace

std::unique_ptr<CommHook> make_int8(const optim::FlatParameters& parameters, const HookOptions&) {
  check_f32("int8", parameters);
  return std::make_unique<Int8>();
}

}  // namespace brigade::dist
