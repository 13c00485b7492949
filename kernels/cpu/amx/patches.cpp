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
  const Reach reach = g.reach_of_outputs();
  const std::int64_t width = g.in_channels * g.positions;
  // Of value v of a patch: the kernel position and the channel.
  std::vector<const std::int32_t*> sources;
  std::vector<std::int64_t> channels;
  for (std::int64_t c = 0; c < g.in_channels; ++c)
    for (std::int64_t k = 0; k < g.positions; ++k) {
      sources.push_back(reach.of(k));
      channels.push_back(c);
    }
  parallel_for(g.images, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const T* image = x + n * g.in_pixels * g.in_channels;
      T* to = patches + n * g.out_pixels * width;
      for (std::int64_t p = 0; p < g.out_pixels; ++p)
        for (std::size_t v = 0; v < sources.size(); ++v, ++to) {
          const std::int32_t from = sources[v][p];
          *to = from < 0 ? T() : image[from * g.in_channels + channels[v]];
        }
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
