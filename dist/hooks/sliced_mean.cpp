// SPDX-License-Identifier: MIT
// dist/hooks/sliced_mean.cpp - encode, all_to_all, sum in rank order, encode, all_gather, decode.
#include "dist/hooks/sliced_mean.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "dist/hooks/hooks.h"

namespace brigade::dist {
namespace {

constexpr std::int64_t kWord = 64;    // Slices are whole words of bits, and so whole cache lines.
constexpr std::int64_t kPart = 1024;  // Elements that are summed while they stay in the first-level cache.

// Calls body(begin, n) for parts of [0, count).
template <class Body>
void for_each_part(std::int64_t count, const Body& body) {
  for (std::int64_t begin = 0; begin < count; begin += kPart) body(begin, std::min(kPart, count - begin));
}

// A slice on its way: its scale, alone in a cache line so that what follows is aligned, then its elements.
struct Block {
  const Encoding& encoding;
  std::byte* data;

  static std::int64_t header(const Encoding& encoding) { return encoding.scaled() ? kAlignment : 0; }
  static std::int64_t bytes(const Encoding& encoding, std::int64_t length) {
    return header(encoding) + length * encoding.bits() / 8;
  }

  float scale() const {
    float value = 1;
    if (encoding.scaled()) std::memcpy(&value, data, sizeof value);
    return value;
  }
  std::byte* at(std::int64_t element) const {
    return data + header(encoding) + element * encoding.bits() / 8;
  }
  void encode(const float* x, std::int64_t count, float scale) const {
    if (encoding.scaled()) std::memcpy(data, &scale, sizeof scale);
    encoding.encode(x, count, scale, at(0));
  }
  void decode(std::int64_t begin, std::int64_t count, float* x) const {
    encoding.decode(at(begin), count, scale(), x);
  }
  // kept = x - what came of it. In parts, so that memory is passed once.
  void keep_lost(const float* x, std::int64_t count, float* kept) const {
    for_each_part(count, [&](std::int64_t part, std::int64_t n) {
      decode(part, n, kept + part);
      for (std::int64_t i = part; i < part + n; ++i) kept[i] = x[i] - kept[i];
    });
  }
};

void add(float* into, const float* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) into[i] += from[i];
}

}  // namespace

std::int64_t SlicedMean::slice_length(std::int64_t count, int size) {
  return (count + size * kWord - 1) / (size * kWord) * kWord;
}

std::int64_t SlicedMean::operator()(const Encoding& encoding, Tensor& gradients, std::int64_t elements,
                                    float divisor, Transport& transport, const Feedback& feedback) {
  const std::int64_t count = gradients.numel();
  if (count == 0) return 0;
  float* const x = gradients.data<float>();
  const int size = transport.size(), own = transport.rank();
  const std::int64_t length = slice_length(count, size), bytes = Block::bytes(encoding, length);
  const auto begin_of = [&](int rank) { return std::min(count, rank * length); };
  const auto count_of = [&](int rank) { return begin_of(rank + 1) - begin_of(rank); };

  Tensor sent = scratch(sent_, size * bytes, DType::u8),
         received = scratch(received_, size * bytes, DType::u8),
         answers = scratch(answers_, size * bytes, DType::u8);
  const auto block = [&](const Tensor& blocks, int rank) {
    return Block{encoding, blocks.raw() + rank * bytes};
  };

  // To each rank its slice.
  if (feedback.sent != nullptr) add(x, feedback.sent, count);
  const float scale = encoding.scale(x, count, elements);
  for (int rank = 0; rank < size; ++rank) block(sent, rank).encode(x + begin_of(rank), count_of(rank), scale);
  transport.all_to_all(sent, received);

  // My slice from all: summed in rank order, so that the bits do not depend on who sums.
  const std::int64_t begin = begin_of(own), own_count = count_of(own);
  Tensor sum_memory = scratch(sum_, length);
  float* const sum = sum_memory.data<float>();
  for_each_part(own_count, [&](std::int64_t part, std::int64_t n) {
    float decoded[kPart];
    block(received, 0).decode(part, n, sum + part);
    for (int rank = 1; rank < size; ++rank) {
      block(received, rank).decode(part, n, decoded);
      add(sum + part, decoded, n);
    }
    for (std::int64_t i = part; i < part + n; ++i) sum[i] /= divisor;
    if (feedback.answered != nullptr) add(sum + part, feedback.answered + begin + part, n);
  });

  // To all, my slice's mean.
  const Block answer = block(answers, own);
  answer.encode(sum, own_count, encoding.scale(sum, own_count, own_count));
  Tensor own_answer = answers.slice(0, own * bytes, (own + 1) * bytes);
  transport.all_gather(own_answer, answers);

  // Nothing is remembered of a step with gradients that are not finite. All ranks see the same scales.
  bool finite = true;
  for (int rank = 0; rank < size; ++rank) finite = finite && std::isfinite(block(answers, rank).scale());
  for (int rank = 0; rank < size; ++rank) {
    const std::int64_t at = begin_of(rank), n = count_of(rank);
    if (finite && feedback.sent != nullptr) block(sent, rank).keep_lost(x + at, n, feedback.sent + at);
    block(answers, rank).decode(0, n, x + at);
  }
  if (finite && feedback.answered != nullptr) answer.keep_lost(sum, own_count, feedback.answered + begin);
  return sent.bytes() + bytes;
}

}  // namespace brigade::dist
