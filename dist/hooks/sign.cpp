// SPDX-License-Identifier: MIT
// dist/hooks/sign.cpp - one bit an element in both directions. Ranks vote on the sign of each element (Bernstein et al.
// 2018, arXiv 1802.04434), each with the weight mean |gradient + error|, and keep what their bits did not say for the
// next step (Karimireddy et al. 2019, arXiv 1901.09847). The rank that counts the votes of a slice keeps what the
// majority's sign did not say, too (Zheng et al. 2019, arXiv 1905.10936): so nothing is lost, only late.
//
// Ties: the rank that counts an element decides for all, a vote of exactly zero is a plus, and its error brings the
// other sign up the next time. Scales are means over a bucket: other plans give other results. An element that is zero
// on all ranks moves by its bucket's scale, to and fro. Read before: dist/hooks/sliced_mean.h.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "dist/hooks/hooks.h"
#include "dist/hooks/sliced_mean.h"

namespace brigade::dist {
namespace {

constexpr std::int64_t kWord = 32;  // Bits that are packed at a time.

class SignEncoding final : public Encoding {
 public:
  int bits() const override { return 1; }

  // mean |x|: of all multiples of the signs the nearest to x.
  float scale(const float* x, std::int64_t count, std::int64_t elements) const override {
    constexpr std::int64_t kLanes = 32;
    double lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += std::abs(x[i + lane]);
    for (; i < count; ++i) lanes[0] += std::abs(x[i]);
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    if (!std::isfinite(sum)) return std::numeric_limits<float>::quiet_NaN();
    return elements == 0 ? 0 : static_cast<float>(sum / static_cast<double>(elements));
  }

  void encode(const float* x, std::int64_t count, float, std::byte* out) const override {
    std::uint32_t* words = reinterpret_cast<std::uint32_t*>(out);
    for (; count >= kWord; count -= kWord, x += kWord) *words++ = packed(x, kWord);
    if (count > 0) *words = packed(x, count);
  }

  void decode(const std::byte* in, std::int64_t count, float scale, float* x) const override {
    const std::uint32_t* words = reinterpret_cast<const std::uint32_t*>(in);
    for (; count >= kWord; count -= kWord, x += kWord) unpack(*words++, kWord, scale, x);
    if (count > 0) unpack(*words, count, scale, x);
  }

 private:
  // A set bit is a minus, as in the floats themselves.
  static std::uint32_t packed(const float* x, std::int64_t count) {
    std::uint32_t word = 0;
    for (std::int64_t i = 0; i < count; ++i) word |= (std::bit_cast<std::uint32_t>(x[i]) >> 31) << i;
    return word;
  }
  static void unpack(std::uint32_t word, std::int64_t count, float scale, float* x) {
    const auto magnitude = std::bit_cast<std::uint32_t>(scale);
    for (std::int64_t i = 0; i < count; ++i)
      x[i] = std::bit_cast<float>(magnitude | ((word >> i) & 1u) << 31);
  }
};

class Sign final : public CommHook {
 public:
  explicit Sign(const optim::FlatParameters& parameters)
      : sent_errors_(parameters.make_buffer()), answer_errors_(parameters.make_buffer()) {}

  HookReport mean(HookBucket& bucket, Transport& transport) override {
    const std::int64_t count = bucket.gradients.numel();
    if (count == 0) return {};
    Tensor sent = bucket.of(sent_errors_), answered = bucket.of(answer_errors_);
    const std::int64_t length = SlicedMean::slice_length(count, transport.size());
    const std::int64_t begin = std::min(count, transport.rank() * length),
                       end = std::min(count, begin + length);
    hand_over(answered, sent, 0, begin, transport.size());
    hand_over(answered, sent, end, count, transport.size());

    std::int64_t elements = 0;
    bucket.for_each_parameter([&](int, std::int64_t first, std::int64_t last) { elements += last - first; });
    const std::int64_t bytes =
        mean_(SignEncoding(), bucket.gradients, elements, static_cast<float>(transport.size()), transport,
              {.sent = sent.data<float>(), .answered = answered.data<float>()});
    for (const Tensor& t : {bucket.gradients, sent, answered}) clear_gaps(bucket, t);
    return {.wire_bytes = bytes};
  }

  NamedTensors state(const optim::FlatParameters& parameters) override {
    NamedTensors out;
    append_state(out, "sent_error", parameters, sent_errors_);
    append_state(out, "answer_error", parameters, answer_errors_);
    return out;
  }

 private:
  // Under a new plan another rank may count an element: what this one kept for it goes into its own next vote, of which
  // the mean takes one N-th.
  static void hand_over(Tensor& answered, Tensor& sent, std::int64_t begin, std::int64_t end, int size) {
    float* const from = answered.data<float>();
    float* const to = sent.data<float>();
    std::uint32_t any = 0;
    for (std::int64_t i = begin; i < end; ++i) any |= std::bit_cast<std::uint32_t>(from[i]);
    if (any == 0) return;
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] += static_cast<float>(size) * from[i];
      from[i] = 0;
    }
  }

  optim::FlatBuffer sent_errors_, answer_errors_;
  SlicedMean mean_;
};

}  // namespace

std::unique_ptr<CommHook> make_sign(const optim::FlatParameters& parameters, const HookOptions&) {
  check_f32("sign", parameters);
  return std::make_unique<Sign>(parameters);
}

}  // namespace brigade::dist
