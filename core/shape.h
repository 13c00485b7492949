// SPDX-License-Identifier: MIT
// core/shape.h - sizes and strides of a tensor: a small fixed-capacity list of 64-bit integers.
// No allocation, so a Tensor copies in a few cache lines. Read next: core/tensor.h.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/check.h"

namespace brigade {

inline constexpr int kMaxDims = 8;

/// Up to kMaxDims signed 64-bit numbers; used for sizes, for strides (in elements) and for lists of dims.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const std::int64_t> values);
  /// `count` times `value`.
  static Dims filled(int count, std::int64_t value);

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t back() const { return (*this)[size_ - 1]; }
  void push_back(std::int64_t value);
  void insert(int position, std::int64_t value);
  void erase(int position);

  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + size_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + size_; }

  friend bool operator==(const Dims& a, const Dims& b);

 private:
  std::array<std::int64_t, kMaxDims> values_{};
  int size_ = 0;
};

using Shape = Dims;
using Strides = Dims;

/// Product of the sizes (1 for a scalar). Throws Error on a negative size or overflow of 63 bits.
std::int64_t numel(const Shape& shape);

/// How the elements of a 4-D tensor [N, C, H, W] lie in memory. Its logical order never changes.
enum class MemoryFormat : std::uint8_t { contiguous, channels_last };

/// Strides of densely packed memory: row-major, or N H W C order for a 4-D channels_last shape.
Strides dense_strides(const Shape& shape, MemoryFormat format = MemoryFormat::contiguous);

/// Maps a dim in [-dims, dims) to [0, dims); anything else throws Error naming `op`.
int normalize_dim(std::string_view op, std::int64_t dim, int dims);

/// NumPy's broadcasting rule: align at the right, sizes equal or 1. Throws Error naming `op` and both shapes.
Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b);

void append_text(std::string& out, const Dims& dims);  ///< "[8, 3, 32, 32]"

}  // namespace brigade
