// SPDX-License-Identifier: MIT
// kernels/cuda/pool.cpp - pooling. Own kernels: cuDNN does not say where a maximum was, and knows no adaptive windows.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {
namespace {

// f(first image, behind the last) for parts of the batch that 32 bits can number.
template <class F>
void for_each_share(const Tensor& x, const Tensor& out, const F& f) {
  BRIGADE_CHECK(is_floating(x.dtype()), "pooling: needs a floating dtype; got ", x.dtype());
  const std::int64_t images = x.size(0), most = std::max(x.numel(), out.numel());
  const std::int64_t parts = std::min(images, (most + kMostElements - 1) / kMostElements);
  for (std::int64_t p = 0; p < parts; ++p) f(p * images / parts, (p + 1) * images / parts);
}

Tensor images(const Tensor& t, std::int64_t begin, std::int64_t end) { return t.slice(0, begin, end); }

void average(const Tensor& x, const Window* window, Tensor& out) {
  for_each_share(x, out, [&](std::int64_t begin, std::int64_t end) {
    const Tensor from = images(x, begin, end), to = images(out, begin, end);
    launched(
        device::avg_pool2d(x.dtype(), from.raw(), image(from), window, to.raw(), image(to), stream_of(x)),
        "avg_pool2d");
  });
}

void average_grad(const Tensor& dy, const Window* window, Tensor& dx) {
  for_each_share(dx, dy, [&](std::int64_t begin, std::int64_t end) {
    const Tensor from = images(dy, begin, end), to = images(dx, begin, end);
    launched(device::avg_pool2d_grad(dy.dtype(), from.raw(), image(from), window, to.raw(), image(to),
                                     stream_of(dy)),
             "avg_pool2d_grad");
  });
}

}  // namespace

void max_pool2d(const Tensor& x, const Window& window, Tensor& out, Tensor& index) {
  for_each_share(x, out, [&](std::int64_t begin, std::int64_t end) {
    const Tensor from = images(x, begin, end), to = images(out, begin, end),
                 places = images(index, begin, end);
    launched(device::max_pool2d(x.dtype(), from.raw(), image(from), window, to.raw(), image(to),
                                places.data<std::int64_t>(), image(places), stream_of(x)),
             "max_pool2d");
  });
}

void max_pool2d_grad(const Tensor& dy, const Tensor& index, const Window& window, Tensor& dx) {
  for_each_share(dx, dy, [&](std::int64_t begin, std::int64_t end) {
    const Tensor from = images(dy, begin, end), to = images(dx, begin, end),
                 places = images(index, begin, end);
    launched(device::max_pool2d_grad(dy.dtype(), from.raw(), image(from), places.data<std::int64_t>(),
                                     image(places), window, to.raw(), image(to), stream_of(dy)),
             "max_pool2d_grad");
  });
}

void avg_pool2d(const Tensor& x, const Window& window, Tensor& out) { average(x, &window, out); }
void avg_pool2d_grad(const Tensor& dy, const Window& window, Tensor& dx) { average_grad(dy, &window, dx); }
void adaptive_avg_pool2d(const Tensor& x, Tensor& out) { average(x, nullptr, out); }
void adaptive_avg_pool2d_grad(const Tensor& dy, Tensor& dx) { average_grad(dy, nullptr, dx); }

}  // namespace brigade::cuda
