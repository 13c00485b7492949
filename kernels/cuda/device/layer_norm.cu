// SPDX-License-Identifier: MIT
// kernels/cuda/device/layer_norm.cu - layer norm over dense rows. Formulas: kernels/reference/norm.cpp. The column sums
// of the gradient are taken over slices of rows and then added in the order of the slices. Read before: rows.cuh.
#include <cmath>

#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/rows.cuh"

namespace brigade::device {
namespace {

template <int V, class T, class S>
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(Rows rows, double epsilon, const T* x, const S* gamma, const S* beta, T* y, S* mean,
                      S* invstd) {
  const double n = static_cast<double>(rows.width);
  for_each_row(rows, [&](std::int64_t row) {
    const T* from = x + row * rows.width;
    double sum = 0;
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<T, V> pack = load<V>(from + column);
      S part = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) part += convert<S>(pack.v[v]);
      sum += static_cast<double>(part);
    });
    const S m = static_cast<S>(fold_block(sum, 0.0, Plus{}) / n);
    // Centred, so that a large mean does not cancel; its own sum corrects the first mean.
    double rest = 0, squares = 0;
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<T, V> pack = load<V>(from + column);
      S part = 0, square = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const S d = convert<S>(pack.v[v]) - m;
        part += d;
        square += d * d;
      }
      rest += static_cast<double>(part);
      squares += static_cast<double>(square);
    });
    rest = fold_block(rest, 0.0, Plus{}) / n;
    squares = fold_block(squares, 0.0, Plus{}) / n - rest * rest;
    const S inverse = static_cast<S>(1 / std::sqrt((squares > 0 ? squares : 0.0) + epsilon));
    const S remainder = static_cast<S>(rest);
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<T, V> pack = load<V>(from + column);
      const Pack<S, V> scale = load<V>(gamma + column), shift = load<V>(beta + column);
      Pack<T, V> result;
#pragma unroll
      for (int v = 0; v < V; ++v)
        result.v[v] =
            convert<T>(((convert<S>(pack.v[v]) - m) - remainder) * inverse * scale.v[v] + shift.v[v]);
      store<V>(y + row * rows.width + column, result);
    });
    if (threadIdx.x == 0) {
      mean[row] = static_cast<S>(static_cast<double>(m) + rest);
      invstd[row] = inverse;
    }
  });
}

template <int V, class T, class S>
__global__ void __launch_bounds__(kThreads)
    grad_input_kernel(Rows rows, const T* dy, const T* x, const S* gamma, const S* mean, const S* invstd,
                      T* dx) {
  for_each_row(rows, [&](std::int64_t row) {
    const std::int64_t start = row * rows.width;
    const S m = mean[row], inverse = invstd[row];
    double sum = 0, dot = 0;
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<T, V> d = load<V>(dy + start + column), in = load<V>(x + start + column);
      const Pack<S, V> scale = load<V>(gamma + column);
      S part = 0, product = 0;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const S g = convert<S>(d.v[v]) * scale.v[v];
        part += g;
        product += g * ((convert<S>(in.v[v]) - m) * inverse);
      }
      sum += static_cast<double>(part);
      dot += static_cast<double>(product);
    });
    const double n = static_cast<double>(rows.width);
    const S shift = static_cast<S>(fold_block(sum, 0.0, Plus{}) / n);
    const S slope = static_cast<S>(fold_block(dot, 0.0, Plus{}) / n);
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<T, V> d = load<V>(dy + start + column), in = load<V>(x + start + column);
      const Pack<S, V> scale = load<V>(gamma + column);
      Pack<T, V> result;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const S xhat = (convert<S>(in.v[v]) - m) * inverse;
        result.v[v] = convert<T>(inverse * (convert<S>(d.v[v]) * scale.v[v] - shift - xhat * slope));
      }
      store<V>(dx + start + column, result);
    });
  });
}

constexpr unsigned kColumns = 32, kLines = 8;

// A block: 32 columns of a slice of rows, eight rows at a time. partial[slice][column]: dgamma, then dbeta.
template <class T, class S>
__global__ void __launch_bounds__(kColumns* kLines)
    grad_columns_kernel(Rows rows, std::int64_t slices, const T* dy, const T* x, const S* mean,
                        const S* invstd, S* partial) {
  __shared__ S scales[kLines][kColumns], shifts[kLines][kColumns];
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + threadIdx.x, slice = blockIdx.y;
  const std::int64_t length = (rows.count + slices - 1) / slices, begin = slice * length;
  const std::int64_t end = begin + length < rows.count ? begin + length : rows.count;
  S scale = 0, shift = 0;
  if (column < rows.width)
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kLines) {
      const S d = convert<S>(dy[row * rows.width + column]);
      scale += d * ((convert<S>(x[row * rows.width + column]) - mean[row]) * invstd[row]);
      shift += d;
    }
  scales[threadIdx.y][threadIdx.x] = scale;
  shifts[threadIdx.y][threadIdx.x] = shift;
  __syncthreads();
  if (threadIdx.y != 0 || column >= rows.width) return;
#pragma unroll
  for (unsigned line = 1; line < kLines; ++line) {
    scale += scales[line][threadIdx.x];
    shift += shifts[line][threadIdx.x];
  }
  partial[slice * rows.width + column] = scale;
  partial[(slices + slice) * rows.width + column] = shift;
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    add_slices_kernel(std::int64_t width, std::int64_t slices, const S* partial, S* dgamma, S* dbeta) {
  for (std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; column < width;
       column += std::int64_t{gridDim.x} * blockDim.x) {
    double scale = 0, shift = 0;
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      scale += static_cast<double>(partial[slice * width + column]);
      shift += static_cast<double>(partial[(slices + slice) * width + column]);
    }
    dgamma[column] = static_cast<S>(scale);
    dbeta[column] = static_cast<S>(shift);
  }
}

}  // namespace

cudaError_t layer_norm(DType dtype, const void* x, const void* gamma, const void* beta, double epsilon,
                       void* out, void* mean, void* invstd, Rows rows, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(out);
    const S *scale = static_cast<const S*>(gamma), *shift = static_cast<const S*>(beta);
    return with_width(
        rows,
        [&](auto width) {
          return launch(layer_norm_kernel<decltype(width)::value, T, S>, row_grid(rows), row_block(rows), 0,
                        stream, rows, epsilon, from, scale, shift, to, static_cast<S*>(mean),
                        static_cast<S*>(invstd));
        },
        from, static_cast<const T*>(to), scale, shift);
  });
}

cudaError_t layer_norm_grad(DType dtype, const void* dy, const void* x, const void* gamma, const void* mean,
                            const void* invstd, void* dx, void* dgamma, void* dbeta, void* partial, Rows rows,
                            cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const T *slopes = static_cast<const T*>(dy), *from = static_cast<const T*>(x);
    T* to = static_cast<T*>(dx);
    const S *scale = static_cast<const S*>(gamma), *means = static_cast<const S*>(mean);
    const S* inverses = static_cast<const S*>(invstd);
    S* sums = static_cast<S*>(partial);
    cudaError_t launched = with_width(
        rows,
        [&](auto width) {
          return launch(grad_input_kernel<decltype(width)::value, T, S>, row_grid(rows), row_block(rows), 0,
                        stream, rows, slopes, from, scale, means, inverses, to);
        },
        slopes, from, static_cast<const T*>(to), scale);
    if (launched != cudaSuccess) return launched;
    const std::int64_t slices = layer_norm_slices(rows);
    const dim3 grid(static_cast<unsigned>((rows.width + kColumns - 1) / kColumns),
                    static_cast<unsigned>(slices));
    launched = launch(grad_columns_kernel<T, S>, grid, dim3(kColumns, kLines), 0, stream, rows, slices,
                      slopes, from, means, inverses, sums);
    if (launched != cudaSuccess) return launched;
    return launch(add_slices_kernel<S>, grid_for(rows.width), kThreads, 0, stream, rows.width, slices, sums,
                  static_cast<S*>(dgamma), static_cast<S*>(dbeta));
  });
}

}  // namespace brigade::device
