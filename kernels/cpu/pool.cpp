// SPDX-License-Identifier: MIT
// kernels/cpu/pool.cpp - pooling. The loops run over pixels outside and channels inside: vectorised where
// channels lie side by side (channels_last), right for any strides. All averages are one kernel: a window is
// a range of rows and a range of columns, fixed or adaptive.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/structured.h"
#include "kernels/ops.h"

namespace brigade::cpu {

namespace {

// Strides of a 4-D tensor in elements.
struct Place {
  std::int64_t n, c, h, w;

  explicit Place(const Tensor& t) : n(t.stride(0)), c(t.stride(1)), h(t.stride(2)), w(t.stride(3)) {}
  std::int64_t pixel(std::int64_t image, std::int64_t row, std::int64_t col) const {
    return image * n + row * h + col * w;
  }
};

// Calls body(unit) with a compile-time true where all channel strides are 1: the only case worth vectorising.
template <class Body>
void with_unit(bool unit, const Body& body) {
  if (unit)
    body(std::true_type{});
  else
    body(std::false_type{});
}

bool unit_channels(const Tensor& t) { return t.stride(1) == 1 || t.size(1) == 1; }

// Calls body(n, h, w) for the pixels of t on all threads.
template <class Body>
void for_each_pixel(const Tensor& t, std::int64_t grain, const Body& body) {
  const std::int64_t height = t.size(2), width = t.size(3);
  parallel_for(t.size(0) * height * width, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i / (height * width), i / width % height, i % width);
  });
}

// ---- Averages ---------------------------------------------------------------------------------------------

// Along one dim: pixels [begin[i], end[i]) of the source meet pixel i of the result.
struct Ranges {
  std::vector<std::int64_t> begin, end;
};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Ranges fixed_ranges(const Window& window, int dim, std::int64_t in, std::int64_t out) {
  Ranges r;
  for (std::int64_t o = 0; o < out; ++o) {
    const std::int64_t first = o * window.stride[dim] - window.padding[dim];
    r.begin.push_back(std::max<std::int64_t>(first, 0));
    r.end.push_back(std::min(first + window.kernel[dim], in));
  }
  return r;
}

Ranges adaptive_ranges(std::int64_t in, std::int64_t out) {
  Ranges r;
  for (std::int64_t o = 0; o < out; ++o) {
    r.begin.push_back(o * in / out);
    r.end.push_back(((o + 1) * in + out - 1) / out);
  }
  return r;
}

// For each input the outputs whose range holds it: ranges begin and end in order, so these are neighbours.
Ranges inverse(const Ranges& r, std::int64_t in) {
  Ranges back;
  std::int64_t first = 0, last = 0;
  const auto out = static_cast<std::int64_t>(r.begin.size());
  for (std::int64_t i = 0; i < in; ++i) {
    while (first < out && r.end[at(first)] <= i) ++first;
    while (last < out && r.begin[at(last)] <= i) ++last;
    back.begin.push_back(first);
    back.end.push_back(std::max(first, last));
  }
  return back;
}

// 1 / length for each range, or 1 / kernel for all (padding counts).
std::vector<double> shares(const Ranges& r, std::int64_t kernel) {
  std::vector<double> share;
  for (std::size_t i = 0; i < r.begin.size(); ++i)
    share.push_back(1.0 / static_cast<double>(kernel > 0 ? kernel : r.end[i] - r.begin[i]));
  return share;
}

enum class Direction { forward, backward };

// to[n, c, i, j] = sum of from over rows[i] x cols[j], each weighted with the shares of the output side.
template <class T>
void weighted_sums(const Tensor& from, const Ranges& rows, const Ranges& cols,
                   const std::vector<double>& row_share, const std::vector<double>& col_share,
                   Direction direction, Tensor& to) {
  using S = compute_t<T>;
  const Place in(from), out(to);
  const T* source = from.data<T>();
  T* target = to.data<T>();
  const std::int64_t channels = to.size(1);
  with_unit(unit_channels(from) && unit_channels(to), [&](auto unit) {
    const std::int64_t in_c = unit ? 1 : in.c, out_c = unit ? 1 : out.c;
    for_each_pixel(to, 8, [&](std::int64_t n, std::int64_t i, std::int64_t j) {
      // Channels in pieces whose sums stay in registers and first cache.
      constexpr std::int64_t kPiece = 256;
      S sums[kPiece];
      for (std::int64_t c0 = 0; c0 < channels; c0 += kPiece) {
        const std::int64_t count = std::min(kPiece, channels - c0);
        std::fill_n(sums, count, S(0));
        for (std::int64_t h = rows.begin[at(i)]; h < rows.end[at(i)]; ++h)
          for (std::int64_t w = cols.begin[at(j)]; w < cols.end[at(j)]; ++w) {
            const T* line = source + in.pixel(n, h, w) + c0 * in_c;
            const S share =
                direction == Direction::forward ? S(1) : static_cast<S>(row_share[at(h)] * col_share[at(w)]);
            for (std::int64_t c = 0; c < count; ++c) sums[c] += static_cast<S>(line[c * in_c]) * share;
          }
        const S share =
            direction == Direction::forward ? static_cast<S>(row_share[at(i)] * col_share[at(j)]) : S(1);
        T* line = target + out.pixel(n, i, j) + c0 * out_c;
        for (std::int64_t c = 0; c < count; ++c) line[c * out_c] = static_cast<T>(sums[c] * share);
      }
    });
  });
}

void average(const Tensor& x, const Ranges& rows, const Ranges& cols, std::int64_t kernel_h,
             std::int64_t kernel_w, Tensor& out) {
  dispatch_floating("avg_pool2d", x.dtype(), [&](auto tag) {
    weighted_sums<typename decltype(tag)::type>(x, rows, cols, shares(rows, kernel_h), shares(cols, kernel_w),
                                                Direction::forward, out);
  });
}

void average_grad(const Tensor& dy, const Ranges& rows, const Ranges& cols, std::int64_t kernel_h,
                  std::int64_t kernel_w, Tensor& dx) {
  dispatch_floating("avg_pool2d_grad", dy.dtype(), [&](auto tag) {
    weighted_sums<typename decltype(tag)::type>(dy, inverse(rows, dx.size(2)), inverse(cols, dx.size(3)),
                                                shares(rows, kernel_h), shares(cols, kernel_w),
                                                Direction::backward, dx);
  });
}

// A window with holes is no range; nobody trains with one.
bool has_holes(const Window& w) { return w.dilation[0] != 1 || w.dilation[1] != 1; }

}  // namespace

void max_pool2d(const Tensor& x, const Window& window, Tensor& out, Tensor& index) {
  const Place in(x), to(out), to_index(index);
  const std::int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  std::int64_t* indices = index.data<std::int64_t>();
  dispatch_floating("max_pool2d", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const T* source = x.data<T>();
    T* target = out.data<T>();
    with_unit(unit_channels(x) && unit_channels(out) && unit_channels(index), [&](auto unit) {
      const std::int64_t in_c = unit ? 1 : in.c, out_c = unit ? 1 : to.c, index_c = unit ? 1 : to_index.c;
      for_each_pixel(out, 8, [&](std::int64_t n, std::int64_t i, std::int64_t j) {
        const std::int64_t top = i * window.stride[0] - window.padding[0],
                           left = j * window.stride[1] - window.padding[1];
        // Channels in pieces whose winners stay in registers and first cache; 32-bit offsets from the window's corner
        // are as wide as a float, so the two are chosen by one mask.
        constexpr std::int64_t kPiece = 64;
        S best[kPiece];
        std::int32_t where[kPiece];
        for (std::int64_t c0 = 0; c0 < channels; c0 += kPiece) {
          const std::int64_t count = std::min(kPiece, channels - c0);
          bool first = true;
          for (std::int64_t p = 0; p < window.kernel[0]; ++p)
            for (std::int64_t q = 0; q < window.kernel[1]; ++q) {
              const std::int64_t down = p * window.dilation[0], right = q * window.dilation[1];
              const std::int64_t h = top + down, w = left + right;
              if (h < 0 || h >= height || w < 0 || w >= width) continue;
              const T* line = source + in.pixel(n, h, w) + c0 * in_c;
              const auto here = static_cast<std::int32_t>(down * width + right);
              if (std::exchange(first, false)) {
                for (std::int64_t c = 0; c < count; ++c) best[c] = static_cast<S>(line[c * in_c]);
                std::fill_n(where, count, here);
                continue;
              }
              // Of equals the first stays; a NaN wins, as in PyTorch, so that it is not hidden.
              for (std::int64_t c = 0; c < count; ++c) {
                const S value = static_cast<S>(line[c * in_c]), old = best[c];
                const bool better = !(value <= old) & (old == old);
                best[c] = better ? value : old;
                where[c] = better ? here : where[c];
              }
            }
          T* to_line = target + to.pixel(n, i, j) + c0 * out_c;
          std::int64_t* index_line = indices + to_index.pixel(n, i, j) + c0 * index_c;
          for (std::int64_t c = 0; c < count; ++c) {
            to_line[c * out_c] = static_cast<T>(best[c]);
            index_line[c * index_c] = top * width + left + where[c];
          }
        }
      });
    });
  });
}

// Windows may overlap, so a pixel can receive several gradients: they are added in a buffer of the
// arithmetic's type, one image a thread.
void max_pool2d_grad(const Tensor& dy, const Tensor& index, const Window&, Tensor& dx) {
  const Place from(dy), from_index(index), to(dx);
  const std::int64_t channels = dx.size(1), width = dx.size(3), pixels = dx.size(2) * width;
  const std::int64_t* indices = index.data<std::int64_t>();
  dispatch_floating("max_pool2d_grad", dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    const T* source = dy.data<T>();
    T* target = dx.data<T>();
    parallel_for(dx.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<S> sums(at(pixels * channels));
      for (std::int64_t n = begin; n < end; ++n) {
        std::fill(sums.begin(), sums.end(), S(0));
        for (std::int64_t i = 0; i < dy.size(2); ++i)
          for (std::int64_t j = 0; j < dy.size(3); ++j)
            for (std::int64_t c = 0; c < channels; ++c) {
              const std::int64_t winner = indices[from_index.pixel(n, i, j) + c * from_index.c];
              sums[at(winner * channels + c)] += static_cast<S>(source[from.pixel(n, i, j) + c * from.c]);
            }
        for (std::int64_t p = 0; p < pixels; ++p)
          for (std::int64_t c = 0; c < channels; ++c)
            target[to.pixel(n, p / width, p % width) + c * to.c] = static_cast<T>(sums[at(p * channels + c)]);
      }
    });
  });
}

void avg_pool2d(const Tensor& x, const Window& window, Tensor& out) {
  if (has_holes(window)) return reference_kernels().avg_pool2d(x, window, out);
  average(x, fixed_ranges(window, 0, x.size(2), out.size(2)), fixed_ranges(window, 1, x.size(3), out.size(3)),
          window.kernel[0], window.kernel[1], out);
}

void avg_pool2d_grad(const Tensor& dy, const Window& window, Tensor& dx) {
  if (has_holes(window)) return reference_kernels().avg_pool2d_grad(dy, window, dx);
  average_grad(dy, fixed_ranges(window, 0, dx.size(2), dy.size(2)),
               fixed_ranges(window, 1, dx.size(3), dy.size(3)), window.kernel[0], window.kernel[1], dx);
}

// A kernel size of 0 stands for the range's own length.
void adaptive_avg_pool2d(const Tensor& x, Tensor& out) {
  average(x, adaptive_ranges(x.size(2), out.size(2)), adaptive_ranges(x.size(3), out.size(3)), 0, 0, out);
}

void adaptive_avg_pool2d_grad(const Tensor& dy, Tensor& dx) {
  average_grad(dy, adaptive_ranges(dx.size(2), dy.size(2)), adaptive_ranges(dx.size(3), dy.size(3)), 0, 0,
               dx);
}

}  // namespace brigade::cpu
