// SPDX-License-Identifier: MIT
// dist/hooks/sixteen_bit.cpp - bf16 and f16 on the wire, f32 in the sum: each mean is rounded twice, however many ranks
// there are. (A transport's own all_reduce of 16-bit tensors may widen them before they travel.) Results do not depend
// on the bucket plan. Read before: dist/hooks/sliced_mean.h.
#include <bit>
#include <cmath>

#include "dist/hooks/hooks.h"
#include "dist/hooks/sliced_mean.h"
#include "dist/scale.h"
#include "kernels/ops.h"

namespace brigade::dist {
namespace {

template <class Wire>
class SixteenBitEncoding final : public Encoding {
 public:
  int bits() const override { return 16; }
  bool scaled() const override { return false; }
  float scale(const float*, std::int64_t, std::int64_t) const override { return 1; }
  void encode(const float* x, std::int64_t count, float, std::byte* out) const override {
    Wire* to = reinterpret_cast<Wire*>(out);
    for (std::int64_t i = 0; i < count; ++i) to[i] = Wire(x[i]);
  }
  void decode(const std::byte* in, std::int64_t count, float, float* x) const override {
    const Wire* from = reinterpret_cast<const Wire*>(in);
    for (std::int64_t i = 0; i < count; ++i) x[i] = from[i];
  }
};

// Bits of the smallest magnitude that rounds to infinity: halfway between the largest finite number and the next.
template <class Wire>
constexpr std::uint32_t kOverflow = std::is_same_v<Wire, f16> ? 0x477ff000u : 0x7f7f8000u;

// No branch per element: almost no bucket overflows.
template <class Wire>
bool overflows(const float* x, std::int64_t count) {
  std::uint32_t any = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu;
    any |= static_cast<std::uint32_t>(magnitude >= kOverflow<Wire>) &
           static_cast<std::uint32_t>(magnitude < 0x7f800000u);
  }
  return any != 0;
}

template <class Wire>
class SixteenBit final : public CommHook {
 public:
  explicit SixteenBit(Divide divide) : divide_(divide) {}

  HookReport mean(HookBucket& bucket, Transport& transport) override {
    const DivideFactors factors = divide_factors(divide_, transport.size());
    if (factors.before != 1) scale(bucket.gradients, factors.before);
    if (bucket.gradients.device() != Device{})
      return mean_by_kernels(bucket, dtype_of<Wire>(), factors.after, transport);
    HookReport report{.overflow = first_overflow(bucket)};
    report.wire_bytes = mean_(SixteenBitEncoding<Wire>(), bucket.gradients, bucket.gradients.numel(),
                              static_cast<float>(1 / factors.after), transport);
    return report;
  }

 private:
  static int first_overflow(const HookBucket& bucket) {
    const float* x = bucket.gradients.data<float>();
    int found = -1;
    if (overflows<Wire>(x, bucket.gradients.numel()))
      bucket.for_each_parameter([&](int position, std::int64_t first, std::int64_t last) {
        if (found < 0 && overflows<Wire>(x + first, last - first)) found = position;
      });
    return found;
  }

  Divide divide_;
  SlicedMean mean_;
};

}  // namespace

// Behind the last element, to the end of the last slice, anything may stand: it travels, and nobody reads it.
HookReport mean_by_kernels(HookBucket& bucket, DType wire, double after, Transport& transport) {
  Tensor& gradients = bucket.gradients;
  const std::int64_t count = gradients.numel();
  if (count == 0) return {};
  const int size = transport.size();
  const std::int64_t length = SlicedMean::slice_length(count, size);
  const Device device = gradients.device();
  Tensor sent = Tensor::empty({size * length}, wire, device);
  Tensor used = sent.slice(0, 0, count);
  ops::copy_(used, gradients);
  if (bucket.sending) bucket.sending(used);
  Tensor received = sent;
  if (size > 1) {
    received = Tensor::empty({size * length}, wire, device);
    transport.all_to_all(sent, received);
  }
  Tensor sum = ops::cast(received.slice(0, 0, length), DType::f32);
  for (int rank = 1; rank < size; ++rank)
    ops::add_(sum, ops::cast(received.slice(0, rank * length, (rank + 1) * length), DType::f32));
  if (after != 1) ops::binary_(Binary::div, sum, 1 / after);  // Divided, as on the CPU.
  const std::int64_t own = transport.rank() * length;
  Tensor answer = sent.slice(0, own, own + length);
  ops::copy_(answer, sum);
  if (size > 1) transport.all_gather(answer, sent);
  ops::copy_(gradients, used);
  return {.wire_bytes = sent.bytes() + answer.bytes()};
}

std::unique_ptr<CommHook> make_bf16(const optim::FlatParameters& parameters, const HookOptions& options) {
  check_f32("bf16", parameters);
  return std::make_unique<SixteenBit<bf16>>(options.divide);
}

std::unique_ptr<CommHook> make_f16(const optim::FlatParameters& parameters, const HookOptions& options) {
  check_f32("f16", parameters);
  return std::make_unique<SixteenBit<f16>>(options.divide);
}

}  // namespace brigade::dist
