// SPDX-License-Identifier: MIT
// core/shape.cpp - arithmetic on shapes.
#include "core/shape.h"

#include <algorithm>

namespace brigade {

Dims::Dims(std::span<const std::int64_t> values) : size_(static_cast<int>(values.size())) {
  BRIGADE_CHECK(values.size() <= kMaxDims, "shape: at most ", kMaxDims, " dims; got ", values.size());
  std::copy(values.begin(), values.end(), values_.begin());
}

Dims Dims::filled(int count, std::int64_t value) {
  Dims dims;
  for (int i = 0; i < count; ++i) dims.push_back(value);
  return dims;
}

void Dims::push_back(std::int64_t value) { insert(size_, value); }

void Dims::insert(int position, std::int64_t value) {
  BRIGADE_CHECK(size_ < kMaxDims, "shape: at most ", kMaxDims, " dims");
  std::copy_backward(begin() + position, end(), end() + 1);
  ++size_;
  (*this)[position] = value;
}

void Dims::erase(int position) {
  std::copy(begin() + position + 1, end(), begin() + position);
  --size_;
}

bool operator==(const Dims& a, const Dims& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::int64_t numel(const Shape& shape) {
  std::int64_t n = 1;
  for (std::int64_t size : shape) {
    BRIGADE_CHECK(size >= 0, "shape: sizes are not negative; got ", shape);
    BRIGADE_CHECK(!__builtin_mul_overflow(n, size, &n), "shape: more than 2^63 elements in ", shape);
  }
  return n;
}

Strides dense_strides(const Shape& shape, MemoryFormat format) {
  Strides strides = Dims::filled(shape.size(), 1);
  if (format == MemoryFormat::channels_last) {
    BRIGADE_CHECK(shape.size() == 4, "channels_last: needs [N, C, H, W]; got ", shape);
    strides[1] = 1;
    strides[3] = shape[1];
    strides[2] = strides[3] * shape[3];
    strides[0] = strides[2] * shape[2];
    return strides;
  }
  for (int i = shape.size() - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

int normalize_dim(std::string_view op, std::int64_t dim, int dims) {
  BRIGADE_CHECK(dim >= -dims && dim < dims, op, ": dim must lie in [", -dims, ", ", dims, "); got ", dim);
  return static_cast<int>(dim < 0 ? dim + dims : dim);
}

Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape out = longer;
  const int shift = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    const std::int64_t x = longer[i + shift], y = shorter[i];
    BRIGADE_CHECK(x == y || x == 1 || y == 1, op, ": shapes must broadcast; got ", a, " and ", b);
    out[i + shift] = x == 1 ? y : x;
  }
  return out;
}

void append_text(std::string& out, const Dims& dims) {
  out += '[';
  for (int i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ", ";
    append_text(out, dims[i]);
  }
  out += ']';
}

}  // namespace brigade
