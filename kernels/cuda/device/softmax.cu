// SPDX-License-Identifier: MIT
// kernels/cuda/device/softmax.cu - softmax, its logarithm, their gradients. Formulas and derivatives:
// kernels/reference/classification.cpp. Read before: rows.cuh.
#include <cmath>

#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/rows.cuh"

namespace brigade::device {
namespace {

// The numerator of p and the sum below it are the same exponentials, so that a row adds up to 1 as well as it can.
template <int V, bool kLog, class X, class Y>
__global__ void __launch_bounds__(kThreads) softmax_kernel(Rows rows, const X* x, Y* y) {
  using C = compute_t<X>;
  for_each_row(rows, [&](std::int64_t row) {
    const X* from = x + row * rows.width;
    C largest = -INFINITY;
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<X, V> pack = load<V>(from + column);
#pragma unroll
      for (int v = 0; v < V; ++v) largest = Larger{}(convert<C>(pack.v[v]), largest);
    });
    largest = fold_block(largest, static_cast<C>(-INFINITY), Larger{});
    double sum = 0;
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<X, V> pack = load<V>(from + column);
      C part = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) part += std::exp(convert<C>(pack.v[v]) - largest);
      sum += static_cast<double>(part);
    });
    sum = fold_block(sum, 0.0, Plus{});
    const C scale = static_cast<C>(1 / sum), log_sum = kLog ? static_cast<C>(std::log(sum)) : C{0};
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<X, V> pack = load<V>(from + column);
      Pack<Y, V> result;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C shifted = convert<C>(pack.v[v]) - largest;
        result.v[v] = convert<Y>(kLog ? shifted - log_sum : std::exp(shifted) * scale);
      }
      store<V>(y + row * rows.width + column, result);
    });
  });
}

template <int V, bool kLog, class T>
__global__ void __launch_bounds__(kThreads) softmax_grad_kernel(Rows rows, const T* dy, const T* y, T* dx) {
  using C = compute_t<T>;
  for_each_row(rows, [&](std::int64_t row) {
    const std::int64_t start = row * rows.width;
    double sum = 0;
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<T, V> d = load<V>(dy + start + column), p = load<V>(y + start + column);
      C part = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) part += kLog ? convert<C>(d.v[v]) : convert<C>(d.v[v]) * convert<C>(p.v[v]);
      sum += static_cast<double>(part);
    });
    const C total = static_cast<C>(fold_block(sum, 0.0, Plus{}));
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<T, V> d = load<V>(dy + start + column), p = load<V>(y + start + column);
      Pack<T, V> result;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C slope = convert<C>(d.v[v]), value = convert<C>(p.v[v]);
        result.v[v] = convert<T>(kLog ? slope - std::exp(value) * total : value * (slope - total));
      }
      store<V>(dx + start + column, result);
    });
  });
}

template <bool kLog, class X, class Y>
cudaError_t launch_softmax(const void* x, void* out, Rows rows, cudaStream_t stream) {
  const X* from = static_cast<const X*>(x);
  Y* to = static_cast<Y*>(out);
  return with_width(
      rows,
      [&](auto width) {
        return launch(softmax_kernel<decltype(width)::value, kLog, X, Y>, row_grid(rows), row_block(rows), 0,
                      stream, rows, from, to);
      },
      from, static_cast<const Y*>(to));
}

template <bool kLog, class T>
cudaError_t launch_grad(const void* dy, const void* y, void* dx, Rows rows, cudaStream_t stream) {
  const T *slopes = static_cast<const T*>(dy), *values = static_cast<const T*>(y);
  T* to = static_cast<T*>(dx);
  return with_width(
      rows,
      [&](auto width) {
        return launch(softmax_grad_kernel<decltype(width)::value, kLog, T>, row_grid(rows), row_block(rows),
                      0, stream, rows, slopes, values, to);
      },
      slopes, values, static_cast<const T*>(to));
}

}  // namespace

cudaError_t softmax(RowFunction function, DType from, DType to, const void* x, void* out, Rows rows,
                    cudaStream_t stream) {
  return for_floating(from, [&](auto tag) {
    using X = typename decltype(tag)::type;
    if (function == RowFunction::softmax)
      return from == to ? launch_softmax<false, X, X>(x, out, rows, stream) : cudaErrorInvalidValue;
    // Log-probabilities of 16-bit logits may be asked for in f32: cross_entropy does.
    if (from == to) return launch_softmax<true, X, X>(x, out, rows, stream);
    if (to != dtype_of<compute_t<X>>()) return cudaErrorInvalidValue;
    return launch_softmax<true, X, compute_t<X>>(x, out, rows, stream);
  });
}

cudaError_t softmax_grad(RowFunction function, DType dtype, const void* dy, const void* y, void* dx,
                         Rows rows, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return function == RowFunction::softmax ? launch_grad<false, T>(dy, y, dx, rows, stream)
                                            : launch_grad<true, T>(dy, y, dx, rows, stream);
  });
}

}  // namespace brigade::device
