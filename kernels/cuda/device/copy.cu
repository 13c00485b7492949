// SPDX-License-Identifier: MIT
// kernels/cuda/device/copy.cu - fill, copy, cast, where, quantize. What is not converted is moved as raw bits. A copy
// between two orders of dims (transpose, contiguous to channels_last) goes through tiles in shared memory, so that both
// sides see whole lines. Read before: map.cuh.
#include <cmath>
#include <limits>

#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/map.cuh"

namespace brigade::device {
namespace {

struct Same {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return x;
  }
};
template <class T>
struct Constant {
  T value;

  BRIGADE_HD T operator()() const { return value; }
};
struct Choose {
  template <class T>
  BRIGADE_HD T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

// As on the CPU: a NaN becomes the lowest value.
template <class T>
struct Quantize {
  float scale;

  BRIGADE_HD T operator()(float x) const {
    constexpr float kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
    const float value = x / scale;
    const float above = value > kLow ? value : kLow, inside = above < kHigh ? above : kHigh;
    return static_cast<T>(std::nearbyint(inside));
  }
};

// f(tag of an unsigned integer of so many bytes).
template <class F>
cudaError_t for_bytes(std::int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(TypeTag<std::uint8_t>{});
    case 2:
      return f(TypeTag<std::uint16_t>{});
    case 4:
      return f(TypeTag<std::uint32_t>{});
    default:
      return f(TypeTag<std::uint64_t>{});
  }
}

// ---- Transposing copies --------------------------------------------------------------------------------------

constexpr int kTile = 32, kTileRows = 8;

// Rows are dense in x, columns in out. `rest` walks the other dims: out, x.
struct Tiles {
  std::int64_t rows, columns, row_stride_out, column_stride_x;
};

template <class T>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(Tiles tiles, Offsets<2> rest, std::uint32_t row_tiles, std::uint32_t all, const T* x,
                     T* out) {
  // One column more than needed, so that the elements of a column lie in different banks.
  __shared__ T tile[kTile][kTile + 1];
  const auto column_tiles = static_cast<std::uint32_t>((tiles.columns + kTile - 1) / kTile);
  for (std::uint32_t item = blockIdx.x; item < all; item += gridDim.x) {
    const std::int64_t column0 = std::int64_t{item % column_tiles} * kTile;
    const std::int64_t row0 = std::int64_t{item / column_tiles % row_tiles} * kTile;
    std::int64_t at[2];
    rest.find(item / column_tiles / row_tiles, at);
    for (int k = threadIdx.y; k < kTile; k += kTileRows) {
      const std::int64_t row = row0 + threadIdx.x, column = column0 + k;
      if (row < tiles.rows && column < tiles.columns)
        tile[k][threadIdx.x] = x[at[1] + row + column * tiles.column_stride_x];
    }
    __syncthreads();
    for (int k = threadIdx.y; k < kTile; k += kTileRows) {
      const std::int64_t row = row0 + k, column = column0 + threadIdx.x;
      if (row < tiles.rows && column < tiles.columns)
        out[at[0] + row * tiles.row_stride_out + column] = tile[threadIdx.x][k];
    }
    __syncthreads();
  }
}

// The dim along which x is dense where out is not, or -1: see kernels/cpu/copy.cpp.
int transposed_dim(const Strided<2>& walk) {
  const int inner = walk.dims - 1;
  if (walk.stride[0][inner] != 1 || walk.stride[1][inner] <= 1 || walk.size[inner] < 4) return -1;
  for (int d = 0; d < inner; ++d)
    if (walk.stride[1][d] == 1 && walk.size[d] >= 4) return d;
  return -1;
}

template <class T>
cudaError_t transpose(const Strided<2>& walk, int dim, const T* x, T* out, cudaStream_t stream) {
  const int inner = walk.dims - 1;
  const Tiles tiles{walk.size[dim], walk.size[inner], walk.stride[0][dim], walk.stride[1][inner]};
  Strided<2> rest = walk;
  rest.dims = 0;
  for (int d = 0; d < inner; ++d) {
    if (d == dim) continue;
    rest.size[rest.dims] = walk.size[d];
    for (int n = 0; n < 2; ++n) rest.stride[n][rest.dims] = walk.stride[n][d];
    ++rest.dims;
  }
  if (rest.dims == 0) {
    rest.dims = 1;
    rest.size[0] = 1;
    rest.stride[0][0] = rest.stride[1][0] = 0;
  }
  const Offsets<2> others(rest, 1);
  const std::int64_t row_tiles = (tiles.rows + kTile - 1) / kTile,
                     column_tiles = (tiles.columns + kTile - 1) / kTile;
  const std::int64_t all = row_tiles * column_tiles * others.numel;
  const unsigned blocks =
      static_cast<unsigned>(std::min<std::int64_t>(all, std::int64_t{multiprocessors()} * 32));
  return launch(transpose_kernel<T>, blocks, dim3(kTile, kTileRows), 0, stream, tiles, others,
                static_cast<std::uint32_t>(row_tiles), static_cast<std::uint32_t>(all), x, out);
}

template <class X, class Y>
cudaError_t cast(const void* x, void* out, const Strided<2>& walk, cudaStream_t stream) {
  // Wide between floats, which is what mixed precision does all the time.
  constexpr bool kFloats = std::is_floating_point_v<compute_t<X>> && std::is_floating_point_v<compute_t<Y>>;
  constexpr int V = kFloats ? kCommonWidth<X, Y> : 1;
  return map<V>(Same{}, walk, stream, static_cast<Y*>(out), Operand<X>{static_cast<const X*>(x)});
}

}  // namespace

cudaError_t fill(DType dtype, void* out, const Strided<1>& walk, double value, cudaStream_t stream) {
  return for_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return for_bytes(sizeof(T), [&](auto raw) {
      using R = typename decltype(raw)::type;
      if constexpr (sizeof(R) == sizeof(T)) {
        const Constant<R> bits{std::bit_cast<R>(convert<T>(value))};
        return map<kWidth<R>>(bits, walk, stream, static_cast<R*>(out));
      } else {
        return cudaErrorInvalidValue;
      }
    });
  });
}

cudaError_t copy(DType from, DType to, const void* x, void* out, const Strided<2>& walk,
                 cudaStream_t stream) {
  if (from == to)
    return for_bytes(size_of(from), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* source = static_cast<const T*>(x);
      T* target = static_cast<T*>(out);
      if (const int dim = transposed_dim(walk); dim >= 0 && walk.numel > 0)
        return transpose(walk, dim, source, target, stream);
      return map<kWidth<T>>(Same{}, walk, stream, target, Operand<T>{source});
    });
  return for_any(from, [&](auto source) {
    return for_any(to, [&](auto target) {
      using X = typename decltype(source)::type;
      using Y = typename decltype(target)::type;
      if constexpr (std::is_same_v<X, Y>)
        return cudaErrorInvalidValue;
      else
        return cast<X, Y>(x, out, walk, stream);
    });
  });
}

cudaError_t where(int item_bytes, const bool* condition, const void* a, const void* b, void* out,
                  const Strided<4>& walk, cudaStream_t stream) {
  return for_bytes(item_bytes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return map<kWidth<T>>(Choose{}, walk, stream, static_cast<T*>(out), Operand<bool>{condition},
                          Operand<T>{static_cast<const T*>(a)}, Operand<T>{static_cast<const T*>(b)});
  });
}

cudaError_t quantize(DType to, const float* x, float scale, void* out, const Strided<2>& walk,
                     cudaStream_t stream) {
  if (to == DType::u8)
    return map<8>(Quantize<std::uint8_t>{scale}, walk, stream, static_cast<std::uint8_t*>(out),
                  Operand<float>{x});
  return map<8>(Quantize<std::int8_t>{scale}, walk, stream, static_cast<std::int8_t*>(out),
                Operand<float>{x});
}

}  // namespace brigade::device
