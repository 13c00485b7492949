// SPDX-License-Identifier: MIT
// kernels/ops_check.h - the checks that several files of kernels/ops*.cpp share, and the names of operations.
#pragma once

#include <string_view>

#include "kernels/ops.h"

namespace brigade::ops {

std::string_view name(Unary op);
std::string_view name(Binary op);
std::string_view name(Reduction op);

inline void check_defined(std::string_view op, const Tensor& x) {
  BRIGADE_CHECK(x.defined(), op, ": needs a tensor; got an undefined one");
}

/// Equal dtype and device.
inline void check_same_kind(std::string_view op, const Tensor& a, const Tensor& b) {
  check_defined(op, a);
  check_defined(op, b);
  BRIGADE_CHECK(a.dtype() == b.dtype(), op, ": dtypes must be equal; got ", a, " and ", b, "; use cast");
  BRIGADE_CHECK(a.device() == b.device(), op, ": devices must be equal; got ", a.device(), " and ",
                b.device());
}

/// Equal shape, dtype and device.
inline void check_same(std::string_view op, const Tensor& a, const Tensor& b) {
  check_same_kind(op, a, b);
  BRIGADE_CHECK(a.shape() == b.shape(), op, ": shapes must be equal; got ", a, " and ", b);
}

/// One element of `dtype` on `device`, called `what` in the message.
inline void check_one(std::string_view op, std::string_view what, const Tensor& t, DType dtype,
                      Device device) {
  BRIGADE_CHECK(t.defined() && t.numel() == 1 && t.dtype() == dtype && t.device() == device, op, ": ", what,
                " must be one ", dtype, " on ", device, "; got ", t);
}

inline void check_floating(std::string_view op, const Tensor& x) {
  check_defined(op, x);
  BRIGADE_CHECK(is_floating(x.dtype()), op, ": needs a floating dtype; got ", x);
}

/// f64 beside f64 activations, f32 beside all others: the dtype of parameters and statistics.
inline DType parameter_dtype(DType activation) { return activation == DType::f64 ? DType::f64 : DType::f32; }

/// `parameter` (called `what` in the message) has `shape`, the parameter dtype and
/// the device for activations `x`.
inline void check_parameter(std::string_view op, std::string_view what, const Tensor& parameter,
                            const Shape& shape, const Tensor& x) {
  BRIGADE_CHECK(parameter.defined() && parameter.shape() == shape, op, ": ", what, " must be ", shape,
                " for x ", x.shape(), "; got ", parameter);
  BRIGADE_CHECK(parameter.dtype() == parameter_dtype(x.dtype()), op, ": ", what, " must be ",
                parameter_dtype(x.dtype()), " beside ", x.dtype(), " activations; got ", parameter);
  BRIGADE_CHECK(parameter.device() == x.device(), op, ": ", what, " must be on ", x.device(), "; got ",
                parameter.device());
}

/// A tensor that is written must not reach one element by two indices (as an expanded one does).
inline void check_writable(std::string_view op, const Tensor& out) {
  check_defined(op, out);
  for (int d = 0; d < out.dims(); ++d)
    BRIGADE_CHECK(out.shape()[d] <= 1 || out.stride(d) != 0, op, ": cannot write to an expanded tensor; got ",
                  out, " with strides ", out.strides());
}

/// `x`, or a copy if it shares memory with `out` under another view: a kernel that writes out[i] before it
/// has read x[j] at the same address would go wrong.
inline Tensor unaliased(const Tensor& x, const Tensor& out) {
  return x.storage() == out.storage() && !x.same_view(out) ? clone(x) : x;
}

/// `x` dense in any memory format that kernels of 4-D activations take, copied if need be.
inline Tensor dense(const Tensor& x) { return contiguous(x, x.memory_format()); }

/// All dims but the last times the last: [.., D] as [rows, D]. A copy only if x is not contiguous.
inline Tensor as_rows(const Tensor& x) {
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < x.dims(); ++d) rows *= x.shape()[d];
  return contiguous(x).view({rows, x.shape().back()});
}

/// Sound geometry, and a window that fits into the padded image x [N, C, H, W].
inline void check_window(std::string_view op, const Window& window, const Shape& x) {
  for (int d = 0; d < 2; ++d) {
    BRIGADE_CHECK(
        window.kernel[d] >= 1 && window.stride[d] >= 1 && window.dilation[d] >= 1 && window.padding[d] >= 0,
        op, ": kernel, stride and dilation are at least 1 and padding at least 0; got kernel ",
        window.kernel[d], ", stride ", window.stride[d], ", dilation ", window.dilation[d], ", padding ",
        window.padding[d]);
    // Before the division of out_size(), which rounds a small negative number to 0.
    const std::int64_t reach = window.dilation[d] * (window.kernel[d] - 1) + 1;
    BRIGADE_CHECK(x[d + 2] + 2 * window.padding[d] >= reach, op, ": the window (", reach,
                  ") is larger than the padded image (", x[d + 2] + 2 * window.padding[d], "); got x ", x);
  }
}

}  // namespace brigade::ops
