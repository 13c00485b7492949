// SPDX-License-Identifier: MIT
// kernels/cpu/amx/patches.cpp - see patches.h.
#include "kernels/cpu/amx/patches.h"

#include "core/dtype.h"
#include "core/parallel.h"
#include "kernels/cpu/amx/geometry.h"

namespace brigade::cpu::amx {

namespace {

template <class T>
void gather(const T* x, const Geometry& g, T* patches) {
  const std::int64_t width = g.in_channels * g.positions;
  parallel_for(g.images, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n)
      for (std::int64_t k = 0; k < g.positions; ++k)
        for (std::int64_t p = 0; p < g.out_pixels; ++p) {
          const std::int32_t from = g.from_out.of(k)[p];
          T* to = patches + (n * g.out_pixels + p) * width + k;
          for (std::int64_t c = 0; c < g.in_channels; ++c)
            to[c * g.positions] = from < 0 ? T() : x[(n * g.in_pixels + from) * g.in_channels + c];
        }
  });
}

}  // namespace

bool wants_patches(const Tensor& x, const Window& window) {
  return x.size(1) < 16 && window.kernel[0] * window.kernel[1] > 1;
}

Tensor patches_of(const Tensor& x, const Tensor& y, const Window& window) {
  const Geometry g(x, y, window);
  Tensor patches = Tensor::empty({x.size(0), g.in_channels * g.positions, y.size(2), y.size(3)}, x.dtype(),
                                 {}, MemoryFormat::channels_last);
  if (x.dtype() == DType::bf16)
    gather(x.data<bf16>(), g, patches.data<bf16>());
  else
    gather(x.data<float>(), g, patches.data<float>());
  return patches;
}

}  // namespace brigade::cpu::amx
