// SPDX-License-Identifier: MIT
// kernels/cpu/conv_im2col.cpp - convolution as a matrix product. A row of the matrix `patches` holds what one
// output pixel sees: kernel positions in order, the group's channels of each side by side, zeros for padding.
// With weights laid out alike, [O, kH kW C]:
//   y = patches wᵀ + bias,   dw = dyᵀ patches,   dpatches = dy w
// The entries of dpatches are added where those of patches came from.
// Read before: conv.cpp.
#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/structured.h"
#include "kernels/ops.h"

namespace brigade::cpu::im2col {

namespace {

// Images are taken so many at a time that `patches` stays below this: a batch of
// large images would need gigabytes.
constexpr std::int64_t kPatchBytes = std::int64_t{32} << 20;

struct Layout {
  std::int64_t height, width, channels;  // Of the input; channels of one group.
  std::int64_t all_channels;             // Distance between neighbouring pixels.
  std::int64_t out_height, out_width;
  Window window;

  std::int64_t positions() const { return window.kernel[0] * window.kernel[1]; }
  std::int64_t columns() const { return positions() * channels; }

  // Row and column of the input pixel under kernel position (i, j) of output pixel (oh, ow); may lie outside.
  std::int64_t row(std::int64_t oh, std::int64_t i) const {
    return oh * window.stride[0] - window.padding[0] + i * window.dilation[0];
  }
  std::int64_t col(std::int64_t ow, std::int64_t j) const {
    return ow * window.stride[1] - window.padding[1] + j * window.dilation[1];
  }
};

Layout layout(const Tensor& x, const Tensor& y, const Window& window) {
  return {x.size(2), x.size(3), x.size(1) / window.groups, x.size(1), y.size(2), y.size(3), window};
}

// A kernel of one pixel that visits every pixel: `patches` would be x itself.
bool is_pointwise(const Window& w) {
  return w.kernel[0] == 1 && w.kernel[1] == 1 && w.stride[0] == 1 && w.stride[1] == 1 && w.padding[0] == 0 &&
         w.padding[1] == 0;
}

// x points at the first channel of the group.
template <class T>
void gather(const T* x, const Layout& l, std::int64_t rows, T* patches) {
  parallel_for(rows, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t ow = r % l.out_width, oh = r / l.out_width % l.out_height;
      const std::int64_t image = r / (l.out_width * l.out_height) * l.height;
      T* to = patches + r * l.columns();
      for (std::int64_t i = 0; i < l.window.kernel[0]; ++i)
        for (std::int64_t j = 0; j < l.window.kernel[1]; ++j, to += l.channels) {
          const std::int64_t h = l.row(oh, i), w = l.col(ow, j);
          if (h < 0 || h >= l.height || w < 0 || w >= l.width)
            std::fill_n(to, l.channels, T(0));
          else
            std::copy_n(x + ((image + h) * l.width + w) * l.all_channels, l.channels, to);
        }
    }
  });
}

// The inverse, pixel by pixel of the input, so that no two threads add to one place. dx is overwritten.
template <class T>
void scatter_add(const T* patches, const Layout& l, std::int64_t images, T* dx) {
  const Window& w = l.window;
  // The output index whose kernel position k lies on input index `in`, or -1.
  const auto source = [&](int dim, std::int64_t in, std::int64_t k, std::int64_t limit) {
    const std::int64_t distance = in + w.padding[dim] - k * w.dilation[dim];
    if (distance < 0 || distance % w.stride[dim] != 0) return std::int64_t{-1};
    return distance / w.stride[dim] < limit ? distance / w.stride[dim] : -1;
  };
  parallel_for(images * l.height * l.width, 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<compute_t<T>> sums(static_cast<std::size_t>(l.channels));
    for (std::int64_t pixel = begin; pixel < end; ++pixel) {
      const std::int64_t in_w = pixel % l.width, in_h = pixel / l.width % l.height;
      const std::int64_t image = pixel / (l.width * l.height) * l.out_height;
      std::fill(sums.begin(), sums.end(), 0);
      for (std::int64_t i = 0; i < w.kernel[0]; ++i) {
        const std::int64_t oh = source(0, in_h, i, l.out_height);
        if (oh < 0) continue;
        for (std::int64_t j = 0; j < w.kernel[1]; ++j) {
          const std::int64_t ow = source(1, in_w, j, l.out_width);
          if (ow < 0) continue;
          const T* from =
              patches +
              (((image + oh) * l.out_width + ow) * l.positions() + i * w.kernel[1] + j) * l.channels;
          for (std::int64_t c = 0; c < l.channels; ++c) sums[static_cast<std::size_t>(c)] += from[c];
        }
      }
      T* to = dx + pixel * l.all_channels;
      for (std::int64_t c = 0; c < l.channels; ++c) to[c] = static_cast<T>(sums[static_cast<std::size_t>(c)]);
    }
  });
}

// [N, C, H, W] in channels_last memory as the matrix [N H W, C], then the columns of group g.
Tensor group_matrix(const Tensor& t, std::int64_t g, std::int64_t groups) {
  const std::int64_t width = t.size(1) / groups;
  return t.permute({0, 2, 3, 1}).view({-1, t.size(1)}).slice(1, g * width, (g + 1) * width);
}

// Weights [O, C, kH, kW] of group g as [O / groups, kH kW C] in `dtype`: one pass that permutes and converts.
Tensor weight_matrix(const Tensor& w, std::int64_t g, std::int64_t groups, DType dtype) {
  const std::int64_t rows = w.size(0) / groups;
  const Tensor part = w.slice(0, g * rows, (g + 1) * rows).permute({0, 2, 3, 1});
  Tensor matrix = Tensor::empty(part.shape(), dtype);
  kernels({}).copy(part, matrix);
  return matrix.view({rows, -1});
}

// `patches` of group g of x.
Tensor patches_of(const Tensor& x, const Tensor& y, const Window& window, std::int64_t g) {
  if (is_pointwise(window)) return group_matrix(x, g, window.groups);
  const Layout l = layout(x, y, window);
  const std::int64_t rows = y.size(0) * y.size(2) * y.size(3);
  Tensor patches = Tensor::empty({rows, l.columns()}, x.dtype());
  dispatch_floating("conv2d", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    gather(group_matrix(x, g, window.groups).data<T>(), l, rows, patches.data<T>());
  });
  return patches;
}

// Calls body(first, last) for runs of images whose patches fit in kPatchBytes; at least one image each.
template <class Body>
void for_image_runs(const Tensor& x, const Tensor& y, const Window& window, const Body& body) {
  const std::int64_t per_image = y.size(2) * y.size(3) * layout(x, y, window).columns() * x.item_bytes();
  const std::int64_t run = std::max<std::int64_t>(kPatchBytes / std::max<std::int64_t>(per_image, 1), 1);
  for (std::int64_t n = 0; n < x.size(0); n += run) body(n, std::min(n + run, x.size(0)));
}

// `t` in channels_last memory; conv.cpp gives dense tensors, so this copies contiguous ones only.
Tensor channels_last(const Tensor& t) { return ops::contiguous(t, MemoryFormat::channels_last); }

}  // namespace

void conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Window& window, Tensor& out) {
  const Tensor input = channels_last(x);
  const bool in_place = out.is_contiguous(MemoryFormat::channels_last);
  Tensor result = in_place ? out : Tensor::empty(out.shape(), out.dtype(), {}, MemoryFormat::channels_last);
  for (std::int64_t g = 0; g < window.groups; ++g) {
    const Tensor weights = weight_matrix(w, g, window.groups, x.dtype()).transpose(0, 1);
    const std::int64_t width = out.size(1) / window.groups;
    const Tensor group_bias = bias.defined() ? bias.slice(0, g * width, (g + 1) * width) : bias;
    for_image_runs(x, out, window, [&](std::int64_t first, std::int64_t last) {
      const Tensor part = result.slice(0, first, last);
      Tensor y = group_matrix(part, g, window.groups);
      product(patches_of(input.slice(0, first, last), part, window, g), weights, group_bias, 0, y);
    });
  }
  if (!in_place) kernels({}).copy(result, out);
}

void conv2d_grad_input(const Tensor& dy, const Tensor& w, const Window& window, Tensor& dx) {
  const Tensor gradient = channels_last(dy);
  const bool in_place = dx.is_contiguous(MemoryFormat::channels_last);
  Tensor result = in_place ? dx : Tensor::empty(dx.shape(), dx.dtype(), {}, MemoryFormat::channels_last);
  for (std::int64_t g = 0; g < window.groups; ++g) {
    const Tensor weights = weight_matrix(w, g, window.groups, dy.dtype());
    for_image_runs(dx, dy, window, [&](std::int64_t first, std::int64_t last) {
      const Tensor dy_part = gradient.slice(0, first, last), dx_part = result.slice(0, first, last);
      const Tensor rows = group_matrix(dy_part, g, window.groups);
      Tensor target = group_matrix(dx_part, g, window.groups);
      if (is_pointwise(window)) return product(rows, weights, {}, 0, target);
      Tensor patches = Tensor::empty({rows.size(0), weights.size(1)}, dy.dtype());
      product(rows, weights, {}, 0, patches);
      dispatch_floating("conv2d_grad_input", dy.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        scatter_add(patches.data<T>(), layout(dx, dy, window), last - first, target.data<T>());
      });
    });
  }
  if (!in_place) kernels({}).copy(result, dx);
}

void conv2d_grad_weight(const Tensor& dy, const Tensor& x, const Window& window, Tensor& dw) {
  const Tensor input = channels_last(x), gradient = channels_last(dy);
  const std::int64_t rows = dw.size(0) / window.groups;
  for (std::int64_t g = 0; g < window.groups; ++g) {
    // Gathered in the layout of the product, then copied to OIHW.
    Tensor sum = Tensor::empty({rows, layout(x, dy, window).columns()}, dw.dtype());
    for_image_runs(x, dy, window, [&](std::int64_t first, std::int64_t last) {
      const Tensor part = gradient.slice(0, first, last);
      product(group_matrix(part, g, window.groups).transpose(0, 1),
              patches_of(input.slice(0, first, last), part, window, g), {}, first == 0 ? 0 : 1, sum);
    });
    Tensor target = dw.slice(0, g * rows, (g + 1) * rows);
    kernels({}).copy(sum.view({rows, dw.size(2), dw.size(3), dw.size(1)}).permute({0, 3, 1, 2}), target);
  }
}

}  // namespace brigade::cpu::im2col
