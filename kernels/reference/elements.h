// SPDX-License-Identifier: MIT
// kernels/reference/elements.h - reading and writing single elements of CPU tensors by index, any dtype and
// strides. Slow and obvious: every element pays a switch on the dtype. Read next: any file beside this one.
#pragma once

#include "kernels/functor/convert.h"
#include "kernels/kernels.h"

namespace brigade::reference {

/// Calls f(index) for every index of `shape` in row-major order.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  Dims index = Dims::filled(shape.size(), 0);
  for (std::int64_t n = numel(shape); n > 0; --n) {
    f(static_cast<const Dims&>(index));
    for (int d = shape.size() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
}

/// Elements from the start of `t` to `index`. A dim of size 1 counts as broadcast: its index is ignored.
inline std::int64_t offset(const Tensor& t, const Dims& index) {
  std::int64_t at = 0;
  for (int d = 0; d < t.dims(); ++d)
    if (t.shape()[d] != 1) at += index[d] * t.stride(d);
  return at;
}

template <class... Index>
std::byte* address(const Tensor& t, Index... index) {
  std::int64_t at = 0;
  int d = 0;
  ((at += index * t.stride(d++)), ...);
  return t.raw() + at * t.item_bytes();
}

/// Element (i, j, …) as a double.
template <class... Index>
double get(const Tensor& t, Index... index) {
  return dispatch(t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    return convert<double>(*reinterpret_cast<const T*>(address(t, index...)));
  });
}

/// Element (i, j, …) = value, rounded to t's dtype.
template <class... Index>
void set(const Tensor& t, double value, Index... index) {
  dispatch(t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    *reinterpret_cast<T*>(address(t, index...)) = convert<T>(value);
  });
}

/// Element (i, j, …) += value. Exact enough only where t is f32 or f64, or few values are added.
template <class... Index>
void add_to(const Tensor& t, double value, Index... index) {
  set(t, get(t, index...) + value, index...);
}

}  // namespace brigade::reference
