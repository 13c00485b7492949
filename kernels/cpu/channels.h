// SPDX-License-Identifier: MIT
// kernels/cpu/channels.h - loops over the channels of an activation: their moments, sums, and every element with what
// belongs to its channel. Two layouts: rows [R, C] (channels_last or 2-D) vectorise along channels, planes [N, C, P]
// (contiguous) along pixels. Read before: kernels/cpu/block_sums.h. Used by batch_norm.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "core/tensor.h"
#include "kernels/cpu/block_sums.h"
#include "kernels/cpu/narrow.h"
#include "kernels/kernels.h"

namespace brigade::cpu {

/// How an activation lies in memory. Its tensor is dense in either format.
struct Layout {
  std::int64_t images, channels, pixels;
  bool rows;  ///< Else planes.

  explicit Layout(const Tensor& t)
      : images(t.size(0)),
        channels(t.size(1)),
        pixels(t.dims() == 4 ? t.size(2) * t.size(3) : 1),
        rows(t.dims() == 2 || t.is_contiguous(MemoryFormat::channels_last)) {}
  std::int64_t count() const { return images * pixels; }
};

inline constexpr std::int64_t kLine = 4096;  ///< Pixels a block of a plane: 128 terms in each of 32 lanes.

/// Mean and sum of squared deviations of `count` values a channel, merged by Chan, Golub and LeVeque's formula (1979).
struct Moments {
  explicit Moments(std::int64_t channels) : mean(static_cast<std::size_t>(channels)), squares(mean.size()) {}
  Moments(const ChannelMoments& known, std::int64_t values)
      : count(static_cast<double>(values)),
        mean(known.mean.data<double>(), known.mean.data<double>() + known.mean.numel()),
        squares(known.squares.data<double>(), known.squares.data<double>() + known.squares.numel()) {}

  double count = 0;
  std::vector<double> mean, squares;

  /// Adds n values of every channel: f(c) gives their mean and squared deviations. No division, so it vectorises.
  template <class F>
  void merge(double n, const F& f) {
    if (n == 0) return;
    const double total = count + n, share = n / total, between = count * share;
    double *m = mean.data(), *q = squares.data();
    const auto channels = static_cast<std::int64_t>(mean.size());
    for (std::int64_t c = 0; c < channels; ++c) {
      const Pair<double> added = f(c);
      const double delta = added.first - m[c];
      q[c] += added.second + delta * delta * between;
      m[c] += delta * share;
    }
    count = total;
  }
};

/// n values given by the sums of (x - shift) and (x - shift)², as their mean and squared deviations. `shift` is one of
/// the values, so a mean that is large beside the deviations does not cancel.
template <class S>
Pair<double> unshifted(double inverse_n, S shift, S sum, S sum_of_squares) {
  const auto first = static_cast<double>(sum);
  const double squares = static_cast<double>(sum_of_squares) - first * first * inverse_n;
  return {static_cast<double>(shift) + first * inverse_n, squares > 0 ? squares : 0};
}

template <class T>
Moments moments_of_rows(const T* x, const Layout& l) {
  using S = compute_t<T>;
  const std::int64_t channels = l.channels;
  const Chunks chunks{l.count()};
  std::vector<Moments> partial(static_cast<std::size_t>(chunks.count()), Moments(channels));
  chunks.for_each([&](std::int64_t chunk) {
    std::vector<S> scratch(static_cast<std::size_t>(3 * channels));
    S *shift = scratch.data(), *sum = shift + channels, *squares = sum + channels;
    chunks.for_each_block(chunk, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = 0; c < channels; ++c) shift[c] = static_cast<S>(x[begin * channels + c]);
      const auto term = [=](std::int64_t r, std::int64_t c) {
        const S d = static_cast<S>(x[r * channels + c]) - shift[c];
        return Pair<S>{d, d * d};
      };
      sum_block_rows(begin, end, channels, term, sum, squares);
      const auto n = static_cast<double>(end - begin);
      partial[static_cast<std::size_t>(chunk)].merge(
          n, [=](std::int64_t c) { return unshifted(1 / n, shift[c], sum[c], squares[c]); });
    });
  });
  for (std::size_t i = 1; i < partial.size(); ++i) {
    const double *mean = partial[i].mean.data(), *squares = partial[i].squares.data();
    partial[0].merge(partial[i].count, [=](std::int64_t c) { return Pair<double>{mean[c], squares[c]}; });
  }
  return partial[0];
}

template <class T>
Moments moments_of_planes(const T* x, const Layout& l) {
  using S = compute_t<T>;
  Moments result(l.channels);
  parallel_for(l.channels, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c) {
      Moments own(1);
      for (std::int64_t n = 0; n < l.images; ++n)
        for (std::int64_t p = 0; p < l.pixels; p += kLine) {
          const T* line = x + (n * l.channels + c) * l.pixels + p;
          const std::int64_t size = std::min(kLine, l.pixels - p);
          const S shift = static_cast<S>(line[0]);
          const Pair<S> sums = sum_block_line<S>(0, size, [=](std::int64_t i) {
            const S d = static_cast<S>(line[i]) - shift;
            return Pair<S>{d, d * d};
          });
          const auto count = static_cast<double>(size);
          own.merge(count,
                    [=](std::int64_t) { return unshifted(1 / count, shift, sums.first, sums.second); });
        }
      result.mean[static_cast<std::size_t>(c)] = own.mean[0];
      result.squares[static_cast<std::size_t>(c)] = own.squares[0];
    }
  });
  result.count = static_cast<double>(l.count());
  return result;
}

template <class T>
Moments moments(const T* x, const Layout& l) {
  return l.rows ? moments_of_rows(x, l) : moments_of_planes(x, l);
}

/// Per channel the sum of term(i, c) over the elements i of channel c.
template <class S, class Term>
std::vector<Pair<double>> channel_sums(const Layout& l, const Term& term) {
  const std::int64_t channels = l.channels, pixels = l.pixels;
  if (l.rows)
    return sum_columns<S>(l.count(), channels,
                          [=](std::int64_t r, std::int64_t c) { return term(r * channels + c, c); });
  std::vector<Pair<double>> totals(static_cast<std::size_t>(channels));
  parallel_for(channels, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t c = first; c < last; ++c)
      for (std::int64_t n = 0; n < l.images; ++n)
        for (std::int64_t p = 0; p < pixels; p += kLine) {
          const std::int64_t begin = (n * channels + c) * pixels + p;
          const Pair<S> sums = sum_block_line<S>(begin, begin + std::min(kLine, pixels - p),
                                                 [=](std::int64_t i) { return term(i, c); });
          totals[static_cast<std::size_t>(c)].first += static_cast<double>(sums.first);
          totals[static_cast<std::size_t>(c)].second += static_cast<double>(sums.second);
        }
  });
  return totals;
}

/// `value` as T, to the same bits wherever in a row it stands.
template <class T, class S>
T stored(S value) {
  if constexpr (std::is_same_v<T, bf16>)
    return narrow(value);
  else
    return static_cast<T>(value);
}

/// Four rows of a piece of columns, computed before any of them is written: to bf16 by narrow().
template <class T, class Value>
void write_four_rows(T* to, std::int64_t channels, std::int64_t r, std::int64_t first, auto width,
                     const Value& value) {
  const std::int64_t last = first + width;
  T* row = to + r * channels;
  if constexpr (std::is_same_v<T, bf16> && !std::is_same_v<decltype(width), std::int64_t>) {
    alignas(64) float values[4][decltype(width)::value];
    for (std::int64_t c = first; c < last; ++c) {
      const std::int64_t i = r * channels + c;
      values[0][c - first] = value(i, c);
      values[1][c - first] = value(i + channels, c);
      values[2][c - first] = value(i + 2 * channels, c);
      values[3][c - first] = value(i + 3 * channels, c);
    }
    for (int k = 0; k < 4; ++k) narrow(values[k], width, row + k * channels + first);
  } else {
#pragma GCC ivdep
    for (std::int64_t c = first; c < last; ++c) {
      const std::int64_t i = r * channels + c;
      const auto v0 = value(i, c), v1 = value(i + channels, c), v2 = value(i + 2 * channels, c),
                 v3 = value(i + 3 * channels, c);
      row[c] = stored<T>(v0);
      row[c + channels] = stored<T>(v1);
      row[c + 2 * channels] = stored<T>(v2);
      row[c + 3 * channels] = stored<T>(v3);
    }
  }
}

/// to[i] = value(i, c) for every element i of channel c. value may read `to` at i.
template <class T, class Value>
void for_each_element(const Layout& l, T* to, const Value& value) {
  const std::int64_t channels = l.channels, pixels = l.pixels;
  const auto grain = [](std::int64_t width) {
    return std::max<std::int64_t>(8192 / std::max<std::int64_t>(width, 1), 1);
  };
  if (l.rows) {
    parallel_for(l.count(), grain(channels), [&](std::int64_t begin, std::int64_t end) {
      std::int64_t r = begin;
      // Four rows at a time: what belongs to a channel is loaded once for them.
      for (; r + 4 <= end; r += 4)
        for_each_piece(channels, [&, r](std::int64_t first, auto width) {
          write_four_rows(to, channels, r, first, width, value);
        });
      for (; r < end; ++r)
#pragma GCC ivdep
        for (std::int64_t c = 0; c < channels; ++c)
          to[r * channels + c] = stored<T>(value(r * channels + c, c));
    });
    return;
  }
  parallel_for(l.images * channels, grain(pixels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      const std::int64_t c = plane % channels;
#pragma GCC ivdep
      for (std::int64_t i = plane * pixels; i < (plane + 1) * pixels; ++i) to[i] = stored<T>(value(i, c));
    }
  });
}

}  // namespace brigade::cpu
