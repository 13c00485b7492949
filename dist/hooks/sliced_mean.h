// SPDX-License-Identifier: MIT
// dist/hooks/sliced_mean.h - the road that bf16, f16, int8 and sign share: elements travel in few bits, but are summed
// in f32. Each rank gets its slice from everyone, averages it, and sends the average, in few bits again, to everyone.
// Read before: dist/comm_hook.h. Read next: dist/hooks/sixteen_bit.cpp.
#pragma once

#include <cstddef>

#include "dist/transport.h"

namespace brigade::dist {

/// Elements as bits: what the hooks on this road differ in.
class Encoding {
 public:
  virtual ~Encoding() = default;
  virtual int bits() const = 0;  ///< An element: 1, 8 or 16.
  virtual bool scaled() const { return true; }
  /// The number that a slice's bits are multiples of; it travels with them. NaN unless all of x [count] is finite.
  /// `elements`: how many of x are not alignment gaps.
  virtual float scale(const float* x, std::int64_t count, std::int64_t elements) const = 0;
  /// `count` elements; what has less than 8 bits begins on a byte. A scale of NaN may encode to anything.
  virtual void encode(const float* x, std::int64_t count, float scale, std::byte* out) const = 0;
  /// A scale of NaN decodes to NaN.
  virtual void decode(const std::byte* in, std::int64_t count, float scale, float* x) const = 0;
};

/// What the encodings lost, to be added the next time (flat memory like the gradients; nullptr: is not kept).
struct Feedback {
  float* sent = nullptr;      ///< By this rank's contribution.
  float* answered = nullptr;  ///< By the mean of the slice that this rank answers for; else unused.
};

/// Owns the working memory of its calls.
class SlicedMean {
 public:
  /// gradients (f32) = sum over ranks / divisor. `elements`: without gaps. Returns the bytes handed to collectives:
  /// (1 + 1/N) times bits() an element, and 64 bytes a slice for a scale. Collective.
  std::int64_t operator()(const Encoding& encoding, Tensor& gradients, std::int64_t elements, float divisor,
                          Transport& transport, const Feedback& feedback = {});

  /// Elements a slice; the last slices may be shorter, or empty.
  static std::int64_t slice_length(std::int64_t count, int size);

 private:
  Tensor sent_, received_, answers_, sum_;
};

}  // namespace brigade::dist
