// SPDX-License-Identifier: MIT
// core/tensor.h - the tensor: shape, strides and dtype over a Storage. No maths (kernels/ops.h), no gradient
// (autograd/variable.h). Read before: core/shape.h, core/storage.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "core/storage.h"

namespace brigade {

/// A strided view of device memory; a cheap handle. Copies share memory, as do the results of all view
/// functions: writing through one is seen through the others and bumps their common version().
///
/// A 4-D tensor is logically [N, C, H, W] whatever its MemoryFormat. Strides are in
/// elements and may be 0 (expand).
class Tensor {
 public:
  Tensor() = default;  ///< Undefined: defined() is false and every other call throws or is meaningless.

  /// Uninitialised dense memory.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = {},
                      MemoryFormat format = MemoryFormat::contiguous);
  /// Zeros in dense memory.
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {},
                      MemoryFormat format = MemoryFormat::contiguous);
  /// A CPU tensor with a copy of `values` in row-major order.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }
  /// A view of all of `storage` as `shape`, dense; its size must fit exactly or be larger.
  static Tensor over(const Storage& storage, const Shape& shape, DType dtype);

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  std::int64_t size(std::int64_t dim) const { return shape_[normalize_dim("size", dim, dims())]; }
  std::int64_t stride(int dim) const { return strides_[dim]; }
  int dims() const { return shape_.size(); }
  std::int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  std::int64_t item_bytes() const { return size_of(dtype_); }
  std::int64_t bytes() const { return numel_ * item_bytes(); }  ///< Of the elements, without gaps.
  Device device() const { return storage_.device(); }
  const Storage& storage() const { return storage_; }

  /// Dense row-major, or dense N H W C for a 4-D tensor. Sizes of 1 do not matter.
  bool is_contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// channels_last for a 4-D tensor that is so and not contiguous as well; else contiguous.
  MemoryFormat memory_format() const;

  /// First element. data<T>() checks the dtype; on CUDA the pointer is a device pointer.
  std::byte* raw() const { return storage_.data() + offset_ * item_bytes(); }
  template <class T>
  T* data() const {
    check_dtype(dtype_of<T>());
    return reinterpret_cast<T*>(raw());
  }
  /// `*this` if it is there, else a copy on `device` with the same strides. With the host at one end it has happened
  /// when this returns. (Of a view that leaves elements out, what lies between is copied as well.)
  Tensor to(Device device) const;

  /// The only element of a one-element tensor, as a double (copies from the device).
  double item() const;
  /// All elements in row-major order on the host; T must match the dtype.
  template <class T>
  std::vector<T> to_vector() const;

  std::uint64_t version() const { return storage_.version(); }
  /// Every function that writes to an existing tensor calls this.
  void bump_version() const { storage_.bump_version(); }
  /// Same memory, shape, strides and dtype.
  bool same_view(const Tensor& other) const;

  // Views: no copy, shared memory. Dims count from the end when negative.
  /// One size may be -1 (inferred). Throws Error if the strides do not allow it (ops::reshape copies then).
  Tensor view(const Shape& shape) const;
  bool can_view(const Shape& shape) const;
  Tensor permute(const Dims& order) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1) const;
  /// Elements begin, begin + step, … below end of `dim`. begin and end count from the end when negative.
  Tensor slice(std::int64_t dim, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const;
  Tensor select(std::int64_t dim, std::int64_t index) const;  ///< Drops `dim`.
  Tensor expand(const Shape& shape) const;                    ///< Sizes of 1 stretch with stride 0.
  Tensor squeeze(std::int64_t dim) const;                     ///< Drops `dim`, which must have size 1.
  Tensor unsqueeze(std::int64_t dim) const;                   ///< Inserts a dim of size 1 before `dim`.
  /// The same bytes, taken for elements of another dtype of equal size.
  Tensor reinterpret(DType dtype) const;

 private:
  Tensor with(const Shape& shape, const Strides& strides, std::int64_t offset) const;
  bool view_strides(const Shape& shape, Strides& strides) const;
  Shape infer(const Shape& shape) const;
  void check_dtype(DType wanted) const;

  Storage storage_;
  Shape shape_;
  Strides strides_;
  std::int64_t offset_ = 0;  // In elements.
  std::int64_t numel_ = 0;
  DType dtype_ = DType::f32;
};

/// "f32 [8, 3, 32, 32]"
void append_text(std::string& out, const Tensor& tensor);

}  // namespace brigade
