// SPDX-License-Identifier: MIT
// core/tensor.cpp - construction and views. The stride arithmetic of view() follows NumPy's rule: a new dim
// may be carved only out of old dims that are contiguous with each other.
#include "core/tensor.h"

#include <algorithm>

namespace brigade {

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device, MemoryFormat format) {
  Tensor t;
  t.numel_ = brigade::numel(shape);
  std::int64_t bytes = 0;
  BRIGADE_CHECK(!__builtin_mul_overflow(t.numel_, size_of(dtype), &bytes), "tensor: too large; got ", shape);
  t.shape_ = shape;
  t.strides_ = dense_strides(shape, format);
  t.dtype_ = dtype;
  t.storage_ = Storage(device, bytes);
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device, MemoryFormat format) {
  Tensor t = empty(shape, dtype, device, format);
  runtime(device).fill_zero(t.raw(), t.bytes());
  return t;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  Tensor t = empty(shape, dtype_of<T>());
  BRIGADE_CHECK(t.numel() == static_cast<std::int64_t>(values.size()), "tensor: ", shape, " needs ",
                t.numel(), " values; got ", values.size());
  std::copy(values.begin(), values.end(), t.data<T>());
  return t;
}

Tensor Tensor::over(const Storage& storage, const Shape& shape, DType dtype) {
  Tensor t;
  t.numel_ = brigade::numel(shape);
  // Divided, not multiplied: the byte count of a hostile shape would overflow.
  BRIGADE_CHECK(t.numel_ <= storage.bytes() / size_of(dtype), "tensor: ", dtype, " ", shape, " needs ",
                t.numel_, " elements of ", size_of(dtype), " bytes; the storage has ", storage.bytes(),
                " bytes");
  t.shape_ = shape;
  t.strides_ = dense_strides(shape);
  t.dtype_ = dtype;
  t.storage_ = storage;
  return t;
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::channels_last && dims() != 4) return false;
  const Strides dense = dense_strides(shape_, format);
  for (int i = 0; i < dims(); ++i)
    if (shape_[i] != 1 && strides_[i] != dense[i]) return numel_ == 0;
  return true;
}

MemoryFormat Tensor::memory_format() const {
  return !is_contiguous() && is_contiguous(MemoryFormat::channels_last) ? MemoryFormat::channels_last
                                                                        : MemoryFormat::contiguous;
}

double Tensor::item() const {
  BRIGADE_CHECK(numel_ == 1, "item: needs one element; got ", *this);
  return dispatch(dtype_, [&](auto tag) {
    typename decltype(tag)::type value;
    runtime(device()).copy_to_host(&value, raw(), sizeof value);
    return static_cast<double>(value);
  });
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  std::int64_t extent = numel_ == 0 ? 0 : 1;
  for (int i = 0; i < dims(); ++i) extent += extent == 0 ? 0 : (shape_[i] - 1) * strides_[i];
  Tensor t = *this;
  t.storage_ = Storage(device, extent * item_bytes());
  t.offset_ = 0;
  copy_bytes(t.raw(), device, raw(), this->device(), extent * item_bytes());
  return t;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  check_dtype(dtype_of<T>());
  if (device().type != DeviceType::cpu) return to(Device{}).to_vector<T>();
  const T* const elements = data<T>();
  std::vector<T> out;
  out.reserve(static_cast<std::size_t>(numel_));
  Dims index = Dims::filled(dims(), 0);
  for (std::int64_t n = 0; n < numel_; ++n) {
    std::int64_t at = 0;
    for (int i = 0; i < dims(); ++i) at += index[i] * strides_[i];
    out.push_back(elements[at]);
    for (int i = dims() - 1; i >= 0 && ++index[i] == shape_[i]; --i) index[i] = 0;
  }
  return out;
}

bool Tensor::same_view(const Tensor& other) const {
  return defined() && other.defined() && raw() == other.raw() && shape_ == other.shape_ &&
         strides_ == other.strides_ && dtype_ == other.dtype_;
}

Tensor Tensor::with(const Shape& shape, const Strides& strides, std::int64_t offset) const {
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = strides;
  t.offset_ = offset;
  t.numel_ = brigade::numel(shape);
  return t;
}

Shape Tensor::infer(const Shape& shape) const {
  Shape out = shape;
  int hole = -1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) continue;
    BRIGADE_CHECK(hole < 0, "view: at most one size may be -1; got ", shape);
    hole = i;
    out[i] = 1;
  }
  const std::int64_t known = brigade::numel(out);
  if (hole >= 0 && known > 0) out[hole] = numel_ / known;
  // Beside a size of 0 any number could stand for -1: refused.
  const bool fits = (hole < 0 || known > 0) && brigade::numel(out) == numel_;
  BRIGADE_CHECK(fits, "view: ", shape_, " has ", numel_, " elements, which do not fit ", shape);
  return out;
}

bool Tensor::view_strides(const Shape& shape, Strides& strides) const {
  strides = dense_strides(shape);
  if (numel_ == 0) return true;
  // From the right: fuse old dims that are contiguous with each other into one group, then carve new dims out
  // of that group until it is used up exactly.
  int from = dims() - 1, to = shape.size() - 1;
  while (from >= 0) {
    const std::int64_t unit = strides_[from];
    std::int64_t group = shape_[from--];
    while (from >= 0 && (shape_[from] == 1 || group == 1 || strides_[from] == unit * group)) {
      if (group == 1 && shape_[from] != 1) break;  // A size-1 dim's own stride means nothing; start afresh.
      group *= shape_[from--];
    }
    std::int64_t carved = 1;
    while (to >= 0 && carved < group) {
      strides[to] = unit * carved;
      carved *= shape[to--];
    }
    if (carved != group) return false;
  }
  return true;  // What is left of `shape` are sizes of 1: any stride serves.
}

bool Tensor::can_view(const Shape& shape) const {
  Strides strides;
  return view_strides(infer(shape), strides);
}

Tensor Tensor::view(const Shape& shape) const {
  const Shape full = infer(shape);
  Strides strides;
  BRIGADE_CHECK(view_strides(full, strides), "view: ", shape_, " with strides ", strides_,
                " cannot be viewed as ", full, " without a copy; use reshape");
  return with(full, strides, offset_);
}

Tensor Tensor::permute(const Dims& order) const {
  BRIGADE_CHECK(order.size() == dims(), "permute: needs ", dims(), " dims; got ", order);
  Shape shape = shape_;
  Strides strides = strides_;
  Dims seen = Dims::filled(dims(), 0);
  for (int i = 0; i < dims(); ++i) {
    const int from = normalize_dim("permute", order[i], dims());
    BRIGADE_CHECK(seen[from]++ == 0, "permute: each dim once; got ", order);
    shape[i] = shape_[from];
    strides[i] = strides_[from];
  }
  return with(shape, strides, offset_);
}

Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1) const {
  const int a = normalize_dim("transpose", dim0, dims()), b = normalize_dim("transpose", dim1, dims());
  Shape shape = shape_;
  Strides strides = strides_;
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return with(shape, strides, offset_);
}

Tensor Tensor::slice(std::int64_t dim, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  const int d = normalize_dim("slice", dim, dims());
  BRIGADE_CHECK(step >= 1, "slice: step must be at least 1; got ", step);
  const std::int64_t size = shape_[d];
  step = std::min(step, std::max<std::int64_t>(size, 1));  // The same elements, and no overflow below.
  const std::int64_t from = std::clamp<std::int64_t>(begin < 0 ? begin + size : begin, 0, size);
  const std::int64_t to = std::clamp<std::int64_t>(end < 0 ? end + size : end, from, size);
  Shape shape = shape_;
  Strides strides = strides_;
  shape[d] = (to - from + step - 1) / step;
  strides[d] *= step;
  return with(shape, strides, offset_ + from * strides_[d]);
}

Tensor Tensor::select(std::int64_t dim, std::int64_t index) const {
  const int d = normalize_dim("select", dim, dims());
  const std::int64_t size = shape_[d];
  BRIGADE_CHECK(index >= -size && index < size, "select: index must lie in [", -size, ", ", size, ") of dim ",
                d, " of ", shape_, "; got ", index);
  Shape shape = shape_;
  Strides strides = strides_;
  shape.erase(d);
  strides.erase(d);
  return with(shape, strides, offset_ + (index < 0 ? index + size : index) * strides_[d]);
}

Tensor Tensor::reinterpret(DType dtype) const {
  BRIGADE_CHECK(size_of(dtype) == item_bytes(), "reinterpret: elements must be of equal size; got ", *this,
                " as ", dtype);
  Tensor t = *this;
  t.dtype_ = dtype;
  return t;
}

Tensor Tensor::expand(const Shape& shape) const {
  const int shift = shape.size() - dims();
  BRIGADE_CHECK(shift >= 0, "expand: cannot drop dims; got ", shape_, " to ", shape);
  Strides strides = Dims::filled(shape.size(), 0);
  for (int i = 0; i < dims(); ++i) {
    const bool stretch = shape_[i] == 1 && shape[i + shift] != 1;
    BRIGADE_CHECK(stretch || shape_[i] == shape[i + shift], "expand: only sizes of 1 stretch; got ", shape_,
                  " to ", shape);
    strides[i + shift] = stretch ? 0 : strides_[i];
  }
  return with(shape, strides, offset_);
}

Tensor Tensor::squeeze(std::int64_t dim) const {
  const int d = normalize_dim("squeeze", dim, dims());
  BRIGADE_CHECK(shape_[d] == 1, "squeeze: dim ", d, " must have size 1; got ", shape_);
  return select(d, 0);
}

Tensor Tensor::unsqueeze(std::int64_t dim) const {
  const int d = normalize_dim("unsqueeze", dim, dims() + 1);
  Shape shape = shape_;
  Strides strides = strides_;
  shape.insert(d, 1);
  strides.insert(d, d < dims() ? strides_[d] * shape_[d] : 1);
  return with(shape, strides, offset_);
}

void Tensor::check_dtype(DType wanted) const {
  BRIGADE_CHECK(dtype_ == wanted, "tensor: expected dtype ", wanted, "; got ", dtype_);
}

void append_text(std::string& out, const Tensor& tensor) {
  if (!tensor.defined()) {
    out += "undefined tensor";
    return;
  }
  out += str(tensor.dtype(), " ", tensor.shape());
}

#define BRIGADE_INSTANTIATE(T)                                       \
  template Tensor Tensor::from<T>(std::span<const T>, const Shape&); \
  template std::vector<T> Tensor::to_vector<T>() const;
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(double)
BRIGADE_INSTANTIATE(bf16)
BRIGADE_INSTANTIATE(f16)
BRIGADE_INSTANTIATE(std::int32_t)
BRIGADE_INSTANTIATE(std::int64_t)
BRIGADE_INSTANTIATE(std::uint8_t)
BRIGADE_INSTANTIATE(std::int8_t)
BRIGADE_INSTANTIATE(bool)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade
