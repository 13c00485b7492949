// SPDX-License-Identifier: MIT
// kernels/cuda/device/augment.cu - crop, flip, normalise and cut out on the GPU, so that bytes travel to it and not
// floats. A thread makes all channels of one pixel. The same as kernels/reference/augment.cpp, bit for bit: what a byte
// becomes is looked up in the same table.
#include "kernels/cuda/device/dispatch.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/walk.cuh"

namespace brigade::device {
namespace {

constexpr int kChoices = 5;  // dy, dx, flip, cutout_y, cutout_x

template <class T>
__global__ void __launch_bounds__(kThreads)
    augment_kernel(std::uint32_t pixels, Divider height, Divider width, const std::uint8_t* images,
                   const std::int32_t* placements, const float* values, std::int64_t cutout, T* out,
                   Image at) {
  const std::int64_t channels = at.size[1], rows = at.size[2], columns = at.size[3];
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pixels; i += gridDim.x * blockDim.x) {
    const std::uint32_t above = width.divide(i), n = height.divide(above);
    const std::int64_t x = i - above * width.divisor, y = above - n * height.divisor;
    const std::int32_t* placed = placements + std::int64_t{n} * kChoices;
    const std::int64_t from_y = y + placed[0], from_x = (placed[2] != 0 ? columns - 1 - x : x) + placed[1];
    const bool inside = from_y >= 0 && from_y < rows && from_x >= 0 && from_x < columns;
    const std::int64_t top = placed[3] - cutout / 2, left = placed[4] - cutout / 2;
    const bool cut = y >= top && y < top + cutout && x >= left && x < left + cutout;
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::uint8_t byte = inside ? images[((n * channels + c) * rows + from_y) * columns + from_x] : 0;
      out[n * at.stride[0] + c * at.stride[1] + y * at.stride[2] + x * at.stride[3]] =
          convert<T>(cut ? 0.0f : values[c * 256 + byte]);
    }
  }
}

}  // namespace

cudaError_t augment_images(const std::uint8_t* images, const std::int32_t* placements, const float* values,
                           std::int64_t cutout, DType dtype, void* out, const Image& out_at,
                           cudaStream_t stream) {
  const std::int64_t pixels = out_at.size[0] * out_at.size[2] * out_at.size[3];
  if (pixels == 0) return cudaSuccess;
  return for_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch(augment_kernel<T>, grid_for(pixels), kThreads, 0, stream,
                  static_cast<std::uint32_t>(pixels), Divider(out_at.size[2]), Divider(out_at.size[3]),
                  images, placements, values, cutout, static_cast<T*>(out), out_at);
  });
}

}  // namespace brigade::device
