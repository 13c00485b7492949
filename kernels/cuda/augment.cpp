// SPDX-License-Identifier: MIT
// kernels/cuda/augment.cpp - images from bytes to floats on the GPU.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {

void augment_images(const Tensor& images, const Tensor& placements, const Tensor& values, std::int64_t cutout,
                    Tensor& out) {
  BRIGADE_CHECK(is_floating(out.dtype()), "augment_images: needs a floating dtype; got ", out.dtype());
  BRIGADE_CHECK(out.numel() <= kMostElements, "augment_images: at most ", kMostElements,
                " values on a GPU; got ", out);
  launched(device::augment_images(images.data<std::uint8_t>(), placements.data<std::int32_t>(),
                                  values.data<float>(), cutout, out.dtype(), out.raw(), image(out),
                                  stream_of(out)),
           "augment_images");
}

}  // namespace brigade::cuda
