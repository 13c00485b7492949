// SPDX-License-Identifier: MIT
// kernels/cpu/amx/geometry.h - which pixel meets which under each position of the kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace brigade::cpu::amx {

/// For every position of the kernel and every target pixel the source pixel, or -1 where that lies outside the image.
class Reach {
 public:
  Reach(std::int64_t positions, std::int64_t targets)
      : targets_(targets), source_(static_cast<std::size_t>(positions * targets), -1) {}
  std::int32_t& at(std::int64_t position, std::int64_t target) {
    return source_[static_cast<std::size_t>(position * targets_ + target)];
  }
  const std::int32_t* of(std::int64_t position) const { return source_.data() + position * targets_; }
  /// By position, whether any target sees anything there: on one padded pixel only the middle of a kernel does.
  std::vector<bool> used() const {
    std::vector<bool> out;
    for (const std::int32_t* at = source_.data(); at != source_.data() + source_.size(); at += targets_)
      out.push_back(std::any_of(at, at + targets_, [](std::int32_t source) { return source >= 0; }));
    return out;
  }

 private:
  std::int64_t targets_;
  std::vector<std::int32_t> source_;
};

/// Sizes of a convolution.
struct Geometry {
  std::int64_t images, in_channels, out_channels, positions;
  std::int64_t in_size[2], out_size[2];
  std::int64_t in_pixels, out_pixels;
  Window window;

  Geometry(const Tensor& x, const Tensor& y, const Window& window_)
      : images(x.size(0)),
        in_channels(x.size(1)),
        out_channels(y.size(1)),
        positions(window_.kernel[0] * window_.kernel[1]),
        in_size{x.size(2), x.size(3)},
        out_size{y.size(2), y.size(3)},
        in_pixels(x.size(2) * x.size(3)),
        out_pixels(y.size(2) * y.size(3)),
        window(window_) {}

  /// Targets are output pixels, sources input pixels.
  Reach reach_of_outputs() const {
    Reach reach(positions, out_pixels);
    for_each_pair([&](std::int64_t k, std::int64_t p, std::int64_t q) {
      reach.at(k, p) = static_cast<std::int32_t>(q);
    });
    return reach;
  }
  /// The other way round.
  Reach reach_of_inputs() const {
    Reach reach(positions, in_pixels);
    for_each_pair([&](std::int64_t k, std::int64_t p, std::int64_t q) {
      reach.at(k, q) = static_cast<std::int32_t>(p);
    });
    return reach;
  }

  /// Where output pixel `out` sees under kernel position k along `dim`; may lie outside.
  std::int64_t source(int dim, std::int64_t out, std::int64_t k) const {
    return out * window.stride[dim] - window.padding[dim] + k * window.dilation[dim];
  }

 private:
  // f(k, p, q) where output pixel p meets input pixel q under kernel position k.
  template <class F>
  void for_each_pair(const F& f) const {
    for (std::int64_t k = 0; k < positions; ++k)
      for (std::int64_t h = 0; h < out_size[0]; ++h) {
        const std::int64_t row = source(0, h, k / window.kernel[1]);
        if (row < 0 || row >= in_size[0]) continue;
        for (std::int64_t w = 0; w < out_size[1]; ++w) {
          const std::int64_t column = source(1, w, k % window.kernel[1]);
          if (column >= 0 && column < in_size[1]) f(k, h * out_size[1] + w, row * in_size[1] + column);
        }
      }
  }
};

}  // namespace brigade::cpu::amx
