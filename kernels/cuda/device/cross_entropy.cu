// SPDX-License-Identifier: MIT
// kernels/cuda/device/cross_entropy.cu - the loss of each row, their mean, and the gradient. A label that is neither in
// range nor ignored makes the loss a NaN and reads nothing: who checks labels may learn of it later. Formulas:
// kernels/reference/classification.cpp. Read before: rows.cuh.
#include <cmath>
#include <limits>

#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/rows.cuh"

namespace brigade::device {
namespace {

template <class L>
__global__ void __launch_bounds__(kThreads)
    losses_kernel(Rows rows, const L* log_probs, Labels labels, double* losses) {
  for_each_row(rows, [&](std::int64_t row) {
    const L* from = log_probs + row * rows.width;
    double sum = 0;
    if (labels.smoothing != 0)
      for_each_pack<1>(rows.width, [&](std::int64_t column) { sum += static_cast<double>(from[column]); });
    sum = fold_block(sum, 0.0, Plus{});
    const std::int64_t label = labels.at[row];
    if (threadIdx.x != 0) return;
    if (label == labels.ignored)
      losses[row] = 0;
    else if (label < 0 || label >= rows.width)
      losses[row] = std::numeric_limits<double>::quiet_NaN();
    else
      losses[row] = -((1 - labels.smoothing) * static_cast<double>(from[label]) +
                      labels.smoothing / static_cast<double>(rows.width) * sum);
  });
}

// One block, so that the order of the sum is one.
template <class L>
__global__ void __launch_bounds__(kThreads)
    mean_kernel(std::int64_t count, const double* losses, Labels labels, L* loss, std::int64_t* counted) {
  double total = 0;
  std::int64_t rows = 0;
  for (std::int64_t row = threadIdx.x; row < count; row += blockDim.x) {
    if (loss != nullptr) total += losses[row];
    rows += labels.at[row] != labels.ignored ? 1 : 0;
  }
  total = fold_block(total, 0.0, Plus{});
  rows = fold_block(rows, std::int64_t{0}, Plus{});
  if (threadIdx.x != 0) return;
  if (loss != nullptr) *loss = static_cast<L>(total / static_cast<double>(rows));  // NaN if all are ignored.
  if (counted != nullptr) *counted = rows;
}

template <int V, class D, class L, class T>
__global__ void __launch_bounds__(kThreads)
    slopes_kernel(Rows rows, const D* dloss, const L* log_probs, Labels labels, const std::int64_t* counted,
                  T* dlogits) {
  const L scale = static_cast<L>(static_cast<double>(*dloss) / static_cast<double>(*counted));
  const L smooth = static_cast<L>(labels.smoothing / static_cast<double>(rows.width));
  const L sure = static_cast<L>(1 - labels.smoothing);
  for_each_row(rows, [&](std::int64_t row) {
    const std::int64_t label = labels.at[row];
    const bool ignored = label == labels.ignored;
    for_each_pack<V>(rows.width, [&](std::int64_t column) {
      const Pack<L, V> from = load<V>(log_probs + row * rows.width + column);
      Pack<T, V> result;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const L target = smooth + (column + v == label ? sure : L{0});
        result.v[v] = convert<T>(ignored ? L{0} : (std::exp(from.v[v]) - target) * scale);
      }
      store<V>(dlogits + row * rows.width + column, result);
    });
  });
}

// Log-probabilities are f32 or f64.
template <class F>
cudaError_t for_log_probs(DType dtype, F&& f) {
  if (dtype == DType::f32) return f(TypeTag<float>{});
  return dtype == DType::f64 ? f(TypeTag<double>{}) : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t cross_entropy(DType dtype, const void* log_probs, const Labels& labels, Rows rows, double* losses,
                          void* loss, cudaStream_t stream) {
  return for_log_probs(dtype, [&](auto tag) {
    using L = typename decltype(tag)::type;
    const cudaError_t launched = launch(losses_kernel<L>, row_grid(rows), row_block(rows), 0, stream, rows,
                                        static_cast<const L*>(log_probs), labels, losses);
    if (launched != cudaSuccess) return launched;
    return launch(mean_kernel<L>, 1u, kThreads, 0, stream, rows.count, losses, labels, static_cast<L*>(loss),
                  nullptr);
  });
}

cudaError_t cross_entropy_grad(const void* dloss, DType dloss_type, DType from, DType to,
                               const void* log_probs, const Labels& labels, Rows rows, std::int64_t* counted,
                               void* dlogits, cudaStream_t stream) {
  const cudaError_t launched =
      launch(mean_kernel<float>, 1u, kThreads, 0, stream, rows.count, nullptr, labels, nullptr, counted);
  if (launched != cudaSuccess) return launched;
  return for_log_probs(from, [&](auto source) {
    using L = typename decltype(source)::type;
    return for_floating(to, [&](auto target) {
      using T = typename decltype(target)::type;
      const L* lp = static_cast<const L*>(log_probs);
      T* out = static_cast<T*>(dlogits);
      return with_width(
          rows,
          [&](auto width) {
            constexpr int V = decltype(width)::value;
            return for_log_probs(dloss_type, [&](auto factor) {
              using D = typename decltype(factor)::type;
              return launch(slopes_kernel<V, D, L, T>, row_grid(rows), row_block(rows), 0, stream, rows,
                            static_cast<const D*>(dloss), lp, labels, counted, out);
            });
          },
          lp, static_cast<const T*>(out));
    });
  });
}

}  // namespace brigade::device
