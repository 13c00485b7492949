// SPDX-License-Identifier: MIT
// kernels/cuda/device/pool.cu - pooling. A thread makes one pixel of V channels of its result: sixteen bytes where
// channels lie side by side, else one channel. Gradients are gathered, too: a pixel of x looks up the windows that hold
// it, which takes no atomics and gives the same bits every time. Loops over
// windows stay loops: unrolled, their nested conditions spill registers. Semantics: kernels/reference/pool.cpp.
#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace brigade::device {
namespace {

// The numbers of all V-channel pixels of an image, in the order of memory.
struct Pixels {
  std::uint32_t count;
  bool channels_inside;
  Divider inner, middle, outer;  // channels, width, height; or width, height, channels.

  Pixels(const Image& image, int width) : channels_inside(image.size[1] == 1 || image.stride[1] == 1) {
    const std::int64_t channels = image.size[1] / width;
    count = static_cast<std::uint32_t>(image.size[0] * channels * image.size[2] * image.size[3]);
    inner = Divider(std::max<std::int64_t>(channels_inside ? channels : image.size[3], 1));
    middle = Divider(std::max<std::int64_t>(channels_inside ? image.size[3] : image.size[2], 1));
    outer = Divider(std::max<std::int64_t>(channels_inside ? image.size[2] : channels, 1));
  }
};

struct Place {
  std::uint32_t n, c;
  std::int32_t h, w;
};

template <int V>
__device__ Place place(const Pixels& pixels, std::uint32_t i) {
  const std::uint32_t a = pixels.inner.divide(i), first = i - a * pixels.inner.divisor;
  const std::uint32_t b = pixels.middle.divide(a), second = a - b * pixels.middle.divisor;
  const std::uint32_t n = pixels.outer.divide(b), third = b - n * pixels.outer.divisor;
  if (pixels.channels_inside)
    return {n, first * V, static_cast<std::int32_t>(third), static_cast<std::int32_t>(second)};
  return {n, third * V, static_cast<std::int32_t>(second), static_cast<std::int32_t>(first)};
}

// Where a channel of an image begins, and a pixel behind that.
template <class T>
__device__ T* plane(T* from, const Image& image, const Place& p) {
  return from + p.n * image.stride[0] + p.c * image.stride[1];
}
__device__ std::int64_t pixel(const Image& image, std::int32_t h, std::int32_t w) {
  return h * image.stride[2] + w * image.stride[3];
}

// Along one dim: which pixels of x belong to output o, and which outputs may hold a pixel. Sides of images and windows
// fit into 31 bits, products of two of them need not.
struct Side {
  std::int32_t in, out, kernel, stride, padding, dilation;
  bool adaptive;

  __device__ std::int32_t first(std::int32_t o) const {
    return adaptive ? static_cast<std::int32_t>(std::int64_t{o} * in / out) : o * stride - padding;
  }
  /// Pixels from first(o) on, `dilation` apart, some of which may lie outside of x.
  __device__ std::int32_t length(std::int32_t o) const {
    return adaptive ? static_cast<std::int32_t>(((o + std::int64_t{1}) * in + out - 1) / out) - first(o)
                    : kernel;
  }
  /// Padding counts in a fixed window.
  __device__ double share(std::int32_t o) const { return 1.0 / static_cast<double>(length(o)); }

  __device__ std::int32_t first_output(std::int32_t i) const {
    if (adaptive) return static_cast<std::int32_t>(std::int64_t{i} * out / in);
    const std::int32_t reach = i + padding - dilation * (kernel - 1);
    return reach <= 0 ? 0 : (reach + stride - 1) / stride;
  }
  __device__ std::int32_t last_output(std::int32_t i) const {
    const std::int32_t last =
        adaptive ? static_cast<std::int32_t>(((i + std::int64_t{1}) * out - 1) / in) : (i + padding) / stride;
    return last < out ? last : out - 1;
  }
  /// Of an output between these two.
  __device__ bool holds(std::int32_t o, std::int32_t i) const {
    return adaptive || (i - first(o)) % dilation == 0;
  }
};

struct Sides {
  Side height, width;
};

template <int V, class T, class C>
__device__ void store_converted(T* at, const C (&values)[V]) {
  Pack<T, V> pack;
#pragma unroll
  for (int v = 0; v < V; ++v) pack.v[v] = convert<T>(values[v]);
  store<V>(at, pack);
}

template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(Pixels pixels, Sides sides, const T* x, Image x_at, T* out, Image out_at,
                    std::int64_t* index, Image index_at) {
  using C = compute_t<T>;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pixels.count;
       i += gridDim.x * blockDim.x) {
    const Place p = place<V>(pixels, i);
    C best[V] = {};
    std::int32_t where[V] = {};
    bool first = true;
#pragma unroll 1
    for (std::int32_t a = 0; a < sides.height.kernel; ++a) {
      const std::int32_t h = sides.height.first(p.h) + a * sides.height.dilation;
      if (h < 0 || h >= sides.height.in) continue;
#pragma unroll 1
      for (std::int32_t b = 0; b < sides.width.kernel; ++b) {
        const std::int32_t w = sides.width.first(p.w) + b * sides.width.dilation;
        if (w < 0 || w >= sides.width.in) continue;
        const Pack<T, V> pack = load<V>(plane(x, x_at, p) + pixel(x_at, h, w));
#pragma unroll
        for (int v = 0; v < V; ++v) {
          // Of equals the first stays; a NaN wins, so that it is not hidden; the very first wins whatever it is.
          const C value = convert<C>(pack.v[v]);
          if (!first && (value <= best[v] || best[v] != best[v])) continue;
          best[v] = value;
          where[v] = h * sides.width.in + w;
        }
        first = false;
      }
    }
    store_converted<V>(plane(out, out_at, p) + pixel(out_at, p.h, p.w), best);
    store_converted<V>(plane(index, index_at, p) + pixel(index_at, p.h, p.w), where);
  }
}

template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    max_pool_grad_kernel(Pixels pixels, Sides sides, const T* dy, Image dy_at, const std::int64_t* index,
                         Image index_at, T* dx, Image dx_at) {
  using C = compute_t<T>;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pixels.count;
       i += gridDim.x * blockDim.x) {
    const Place p = place<V>(pixels, i);
    const std::int32_t me = p.h * sides.width.in + p.w;
    C sum[V] = {};
#pragma unroll 1
    for (std::int32_t a = sides.height.first_output(p.h); a <= sides.height.last_output(p.h); ++a)
#pragma unroll 1
      for (std::int32_t b = sides.width.first_output(p.w); b <= sides.width.last_output(p.w); ++b) {
        const Pack<std::int64_t, V> winner = load<V>(plane(index, index_at, p) + pixel(index_at, a, b));
        const Pack<T, V> slope = load<V>(plane(dy, dy_at, p) + pixel(dy_at, a, b));
#pragma unroll
        for (int v = 0; v < V; ++v)
          if (winner.v[v] == me) sum[v] += convert<C>(slope.v[v]);
      }
    store_converted<V>(plane(dx, dx_at, p) + pixel(dx_at, p.h, p.w), sum);
  }
}

template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    avg_pool_kernel(Pixels pixels, Sides sides, const T* x, Image x_at, T* out, Image out_at) {
  using C = compute_t<T>;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pixels.count;
       i += gridDim.x * blockDim.x) {
    const Place p = place<V>(pixels, i);
    C sum[V] = {};
#pragma unroll 1
    for (std::int32_t a = 0; a < sides.height.length(p.h); ++a) {
      const std::int32_t h = sides.height.first(p.h) + a * sides.height.dilation;
      if (h < 0 || h >= sides.height.in) continue;
#pragma unroll 1
      for (std::int32_t b = 0; b < sides.width.length(p.w); ++b) {
        const std::int32_t w = sides.width.first(p.w) + b * sides.width.dilation;
        if (w < 0 || w >= sides.width.in) continue;
        const Pack<T, V> pack = load<V>(plane(x, x_at, p) + pixel(x_at, h, w));
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += convert<C>(pack.v[v]);
      }
    }
    const C share = static_cast<C>(sides.height.share(p.h) * sides.width.share(p.w));
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] *= share;
    store_converted<V>(plane(out, out_at, p) + pixel(out_at, p.h, p.w), sum);
  }
}

template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    avg_pool_grad_kernel(Pixels pixels, Sides sides, const T* dy, Image dy_at, T* dx, Image dx_at) {
  using C = compute_t<T>;
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pixels.count;
       i += gridDim.x * blockDim.x) {
    const Place p = place<V>(pixels, i);
    C sum[V] = {};
#pragma unroll 1
    for (std::int32_t a = sides.height.first_output(p.h); a <= sides.height.last_output(p.h); ++a) {
      if (!sides.height.holds(a, p.h)) continue;
      const double row_share = sides.height.share(a);
#pragma unroll 1
      for (std::int32_t b = sides.width.first_output(p.w); b <= sides.width.last_output(p.w); ++b) {
        if (!sides.width.holds(b, p.w)) continue;
        const C share = static_cast<C>(row_share * sides.width.share(b));
        const Pack<T, V> slope = load<V>(plane(dy, dy_at, p) + pixel(dy_at, a, b));
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += convert<C>(slope.v[v]) * share;
      }
    }
    store_converted<V>(plane(dx, dx_at, p) + pixel(dx_at, p.h, p.w), sum);
  }
}

std::int32_t narrow(std::int64_t size) { return static_cast<std::int32_t>(size); }

Sides sides_of(const Image& x, const Image& out, const Window* window) {
  Side side[2];
  for (int d = 0; d < 2; ++d) {
    side[d] = {narrow(x.size[d + 2]), narrow(out.size[d + 2]), 1, 1, 0, 1, window == nullptr};
    if (window == nullptr) continue;
    side[d].kernel = narrow(window->kernel[d]);
    side[d].stride = narrow(window->stride[d]);
    side[d].padding = narrow(window->padding[d]);
    side[d].dilation = narrow(window->dilation[d]);
  }
  return {side[0], side[1]};
}

template <int V, class T>
bool channels_pack(const T* p, const Image& at) {
  if (at.size[1] % V != 0 || at.stride[1] != 1 || !is_aligned<V>(p)) return false;
  for (const int d : {0, 2, 3})
    if (at.size[d] > 1 && at.stride[d] % V != 0) return false;
  return true;
}

// f(integral_constant<int, V>) with V channels of T a thread if `wide`.
template <class T, class F>
cudaError_t with_channels(bool wide, F&& f) {
  if (wide) return f(std::integral_constant<int, kWidth<T>>{});
  return f(std::integral_constant<int, 1>{});
}

}  // namespace

cudaError_t max_pool2d(DType dtype, const void* x, const Image& x_at, const Window& window, void* out,
                       const Image& out_at, std::int64_t* index, const Image& index_at, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int kWide = kWidth<T>;
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(out);
    const bool wide = channels_pack<kWide>(from, x_at) && channels_pack<kWide>(to, out_at) &&
                      channels_pack<kWide>(index, index_at);
    return with_channels<T>(wide, [&](auto width) {
      constexpr int V = decltype(width)::value;
      const Pixels pixels(out_at, V);
      return launch(max_pool_kernel<V, T>, grid_for(pixels.count), kThreads, 0, stream, pixels,
                    sides_of(x_at, out_at, &window), from, x_at, to, out_at, index, index_at);
    });
  });
}

cudaError_t max_pool2d_grad(DType dtype, const void* dy, const Image& dy_at, const std::int64_t* index,
                            const Image& index_at, const Window& window, void* dx, const Image& dx_at,
                            cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int kWide = kWidth<T>;
    const T* from = static_cast<const T*>(dy);
    T* to = static_cast<T*>(dx);
    const bool wide = channels_pack<kWide>(from, dy_at) && channels_pack<kWide>(to, dx_at) &&
                      channels_pack<kWide>(index, index_at);
    return with_channels<T>(wide, [&](auto width) {
      constexpr int V = decltype(width)::value;
      const Pixels pixels(dx_at, V);
      return launch(max_pool_grad_kernel<V, T>, grid_for(pixels.count), kThreads, 0, stream, pixels,
                    sides_of(dx_at, dy_at, &window), from, dy_at, index, index_at, to, dx_at);
    });
  });
}

cudaError_t avg_pool2d(DType dtype, const void* x, const Image& x_at, const Window* window, void* out,
                       const Image& out_at, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(out);
    const bool wide = channels_pack<kWidth<T>>(from, x_at) && channels_pack<kWidth<T>>(to, out_at);
    return with_channels<T>(wide, [&](auto width) {
      constexpr int V = decltype(width)::value;
      const Pixels pixels(out_at, V);
      return launch(avg_pool_kernel<V, T>, grid_for(pixels.count), kThreads, 0, stream, pixels,
                    sides_of(x_at, out_at, window), from, x_at, to, out_at);
    });
  });
}

cudaError_t avg_pool2d_grad(DType dtype, const void* dy, const Image& dy_at, const Window* window, void* dx,
                            const Image& dx_at, cudaStream_t stream) {
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(dy);
    T* to = static_cast<T*>(dx);
    const bool wide = channels_pack<kWidth<T>>(from, dy_at) && channels_pack<kWidth<T>>(to, dx_at);
    return with_channels<T>(wide, [&](auto width) {
      constexpr int V = decltype(width)::value;
      const Pixels pixels(dx_at, V);
      return launch(avg_pool_grad_kernel<V, T>, grid_for(pixels.count), kThreads, 0, stream, pixels,
                    sides_of(dx_at, dy_at, window), from, dy_at, to, dx_at);
    });
  });
}

}  // namespace brigade::device
