// SPDX-License-Identifier: MIT
// kernels/cuda/device/optimizer.cu - optimizer steps over flat memory: one launch reads and writes everything once, 16
// bytes at a time. Whether there is a step, and what gradients are divided by, is read on the device. Like everything
// in this library it is compiled without fused multiply-adds, so that an element gets the CPU's bits.
// Read before: kernels/functor/optimizer.h.
#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"
#include "kernels/functor/optimizer.h"

namespace brigade::device {
namespace {

// Step: bool begin() reads what lies in memory, once a thread; false: there is no step. Then
// void operator()(std::int64_t i, integral_constant<int, V>) does elements i .. i + V - 1.
template <int V, class Step>
__global__ void __launch_bounds__(kThreads) flat_kernel(std::int64_t count, Step step) {
  if (!step.begin()) return;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, packs = count / V;
  for (std::int64_t i = first; i < packs; i += std::int64_t{gridDim.x} * blockDim.x)
    step(i * V, std::integral_constant<int, V>{});
  if (V > 1 && packs * V + first < count) step(packs * V + first, std::integral_constant<int, 1>{});
}

// Three or four streams of memory in packs of four floats keep registers few and are enough to fill a memory system.
template <class T>
inline constexpr int kFlatWidth = kWidth<T>;

template <class Step, class T, class... Ts>
cudaError_t flat(std::int64_t count, const Step& step, cudaStream_t stream, const T* first,
                 const Ts*... others) {
  constexpr int V = kFlatWidth<T>;
  if (is_aligned<V>(first) && (is_aligned<V>(others) && ...))
    return launch(flat_kernel<V, Step>, grid_for((count + V - 1) / V), kThreads, 0, stream, count, step);
  return launch(flat_kernel<1, Step>, grid_for(count), kThreads, 0, stream, count, step);
}

/// What the device knows of this step; false if it is skipped.
template <class Constants, class C>
__device__ bool read_control(Constants& k, C& factor) {
  if (functor::skips(k.control)) return false;
  k = functor::with_control(k);
  factor = functor::gradient_factor<C>(k.control);
  return true;
}

template <class T>
struct Sgd {
  functor::Sgd<compute_t<T>> step;
  const T* grad;
  T *momentum, *param;  // momentum is null without any.
  compute_t<T> factor = 1;

  __device__ bool begin() { return read_control(step.k, factor); }
  template <class Width>
  __device__ void operator()(std::int64_t i, Width) const {
    using C = compute_t<T>;
    constexpr int V = Width::value;
    const Pack<T, V> g = load<V>(grad + i);
    Pack<T, V> p = load<V>(param + i), m{};
    if (momentum != nullptr) m = load<V>(momentum + i);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C value = convert<C>(p.v[v]), buf = convert<C>(m.v[v]);
      if (momentum != nullptr)
        step(convert<C>(g.v[v]) * factor, buf, value);
      else
        step(convert<C>(g.v[v]) * factor, value);
      m.v[v] = convert<T>(buf);
      p.v[v] = convert<T>(value);
    }
    if (momentum != nullptr) store<V>(momentum + i, m);
    store<V>(param + i, p);
  }
};

template <class T>
struct Adamw {
  functor::Adamw<compute_t<T>> step;
  const T* grad;
  T *m, *v, *param;
  compute_t<T> factor = 1;

  __device__ bool begin() { return read_control(step.k, factor); }
  template <class Width>
  __device__ void operator()(std::int64_t i, Width) const {
    using C = compute_t<T>;
    constexpr int V = Width::value;
    const Pack<T, V> g = load<V>(grad + i);
    Pack<T, V> p = load<V>(param + i), first = load<V>(m + i), second = load<V>(v + i);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      C value = convert<C>(p.v[k]), a = convert<C>(first.v[k]), b = convert<C>(second.v[k]);
      step(convert<C>(g.v[k]) * factor, a, b, value);
      first.v[k] = convert<T>(a);
      second.v[k] = convert<T>(b);
      p.v[k] = convert<T>(value);
    }
    store<V>(m + i, first);
    store<V>(v + i, second);
    store<V>(param + i, p);
  }
};

template <class T>
struct Lerp {
  compute_t<T> weight;
  const T* target;
  T* average;

  __device__ bool begin() { return true; }
  template <class Width>
  __device__ void operator()(std::int64_t i, Width) const {
    using C = compute_t<T>;
    constexpr int V = Width::value;
    const Pack<T, V> to = load<V>(target + i);
    Pack<T, V> a = load<V>(average + i);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C old = convert<C>(a.v[v]);
      a.v[v] = convert<T>(old + weight * (convert<C>(to.v[v]) - old));
    }
    store<V>(average + i, a);
  }
};

template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    flag_kernel(Offsets<1> offsets, unsigned tail, const T* x, std::int32_t* flag) {
  using C = compute_t<T>;
  // 0 times a finite value is 0, 0 times any other a NaN, which no later addition takes away.
  C sum = 0;
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::uint32_t i = first; i < offsets.numel; i += gridDim.x * blockDim.x) {
    std::int64_t at;
    offsets.find(i, &at);
    const Pack<T, V> pack = load<V>(x + at);
#pragma unroll
    for (int v = 0; v < V; ++v) sum += convert<C>(pack.v[v]) * C{0};
  }
  if (V > 1 && first < tail) sum += convert<C>(x[std::int64_t{offsets.numel} * V + first]) * C{0};
  if (sum != C{0}) *flag = 1;  // Whoever writes writes the same.
}

__global__ void clip_kernel(double max_norm, const double* squares, float* factor) {
  *factor = functor::clip_factor(max_norm, *squares);
}

__global__ void trust_kernel(TrustConstants k, const double* value_squares, const double* grad_squares,
                             float* ratio) {
  *ratio = functor::trust_ratio(k, *value_squares, *grad_squares);
}

__global__ void loss_scale_kernel(LossScaleConstants k, const std::int32_t* found, float* scale,
                                  std::int32_t* good_steps) {
  functor::move_loss_scale(k, *found != 0, *scale, *good_steps);
}

}  // namespace

cudaError_t sgd(const SgdConstants& k, DType dtype, const void* grad, void* momentum, void* param,
                std::int64_t count, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* buffer = k.momentum == 0 ? nullptr : static_cast<T*>(momentum);
    const Sgd<T> step{{k}, static_cast<const T*>(grad), buffer, static_cast<T*>(param)};
    return flat(count, step, stream, step.grad, static_cast<const T*>(buffer),
                static_cast<const T*>(step.param));
  });
}

cudaError_t adamw(const AdamwConstants& k, DType dtype, const void* grad, void* m, void* v, void* param,
                  std::int64_t count, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Adamw<T> step{
        {k}, static_cast<const T*>(grad), static_cast<T*>(m), static_cast<T*>(v), static_cast<T*>(param)};
    return flat(count, step, stream, step.grad, static_cast<const T*>(step.m), static_cast<const T*>(step.v),
                static_cast<const T*>(step.param));
  });
}

cudaError_t lerp(DType dtype, const void* target, double weight, void* average, std::int64_t count,
                 cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Lerp<T> step{static_cast<compute_t<T>>(weight), static_cast<const T*>(target),
                       static_cast<T*>(average)};
    return flat(count, step, stream, step.target, static_cast<const T*>(step.average));
  });
}

cudaError_t flag_non_finite(DType dtype, const void* x, const Strided<1>& walk, std::int32_t* flag,
                            cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int V = kWidth<T>;
    const T* from = static_cast<const T*>(x);
    if (!packs<V>(walk, 0, from))
      return launch(flag_kernel<1, T>, grid_for(walk.numel), kThreads, 0, stream, Offsets<1>(walk, 1), 0u,
                    from, flag);
    return launch(flag_kernel<V, T>, grid_for((walk.numel + V - 1) / V), kThreads, 0, stream,
                  Offsets<1>(walk, V), static_cast<unsigned>(walk.size[walk.dims - 1] % V), from, flag);
  });
}

cudaError_t clip_factor(double max_norm, const double* squares, float* factor, cudaStream_t stream) {
  return launch(clip_kernel, 1u, 1u, 0, stream, max_norm, squares, factor);
}

cudaError_t trust_ratio(const TrustConstants& k, const double* value_squares, const double* grad_squares,
                        float* ratio, cudaStream_t stream) {
  return launch(trust_kernel, 1u, 1u, 0, stream, k, value_squares, grad_squares, ratio);
}

cudaError_t update_loss_scale(const LossScaleConstants& k, const std::int32_t* found, float* scale,
                              std::int32_t* good_steps, cudaStream_t stream) {
  return launch(loss_scale_kernel, 1u, 1u, 0, stream, k, found, scale, good_steps);
}

}  // namespace brigade::device
