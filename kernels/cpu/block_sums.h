// SPDX-License-Identifier: MIT
// kernels/cpu/block_sums.h - pairs of sums that normalisation needs, fast and exact enough: f32 inside a
// block of at most 1024 terms a sum, double across blocks, in an order that does not depend on the number of
// threads. Used by batch_norm.cpp and layer_norm.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/parallel.h"

namespace brigade::cpu {

template <class S>
struct Pair {
  S first = 0, second = 0;
};

inline constexpr std::int64_t kBlockRows = 64;

/// Calls body(first, width) for pieces of a row of `columns`: whole ones, whose width is a constant of the compiler's,
/// so that a vectorised loop over one has no tail (with 64 channels it would cost as much as the loop), then the rest.
template <class Body>
void for_each_piece(std::int64_t columns, const Body& body) {
  constexpr std::int64_t kPiece = 64;
  std::int64_t c = 0;
  for (; c + kPiece <= columns; c += kPiece) body(c, std::integral_constant<std::int64_t, kPiece>{});
  if (c < columns) body(c, columns - c);
}

/// sums[c] = sum over rows r in [begin, end) of term(r, c), for all columns c: vectorises along columns.
/// Four rows at a time, because otherwise loading and storing the sums costs more than reading the terms.
/// A term may write an element of its own place (`#pragma GCC ivdep`: kernels/cpu/map.h).
template <class S, class Term>
void sum_block_rows(std::int64_t begin, std::int64_t end, std::int64_t columns, const Term& term,
                    S* __restrict first, S* __restrict second) {
  std::fill_n(first, columns, S(0));
  std::fill_n(second, columns, S(0));
  std::int64_t r = begin;
  for (; r + 4 <= end; r += 4)
    for_each_piece(columns, [&, r](std::int64_t from, auto width) {
      const std::int64_t to = from + width;
#pragma GCC ivdep
      for (std::int64_t c = from; c < to; ++c) {
        const Pair<S> t0 = term(r, c), t1 = term(r + 1, c), t2 = term(r + 2, c), t3 = term(r + 3, c);
        first[c] += (t0.first + t1.first) + (t2.first + t3.first);
        second[c] += (t0.second + t1.second) + (t2.second + t3.second);
      }
    });
  for (; r < end; ++r)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < columns; ++c) {
      const Pair<S> t = term(r, c);
      first[c] += t.first;
      second[c] += t.second;
    }
}

/// The sum of term(i) for i in [begin, end): vectorises along i. The order of additions is written out as
/// lanes, since the compiler may not reorder a float sum by itself.
template <class S, class Term>
Pair<S> sum_block_line(std::int64_t begin, std::int64_t end, const Term& term) {
  constexpr int kLanes = 32;
  S first[kLanes] = {}, second[kLanes] = {};
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      const Pair<S> t = term(i + lane);
      first[lane] += t.first;
      second[lane] += t.second;
    }
  for (; i < end; ++i) {
    const Pair<S> t = term(i);
    first[i & 7] += t.first;
    second[i & 7] += t.second;
  }
  Pair<S> sum;
  for (int lane = 0; lane < kLanes; ++lane) {
    sum.first += first[lane];
    sum.second += second[lane];
  }
  return sum;
}

/// Rows cut into chunks by their number alone. A chunk has its own partial sums; adding those in order gives
/// the same bits for any number of threads.
struct Chunks {
  std::int64_t rows;

  std::int64_t count() const { return std::clamp<std::int64_t>(rows / 256, 1, 32); }
  std::int64_t begin(std::int64_t chunk) const { return rows * chunk / count(); }

  /// Calls body(chunk), on all threads. The last one first: its rows have just been written and are still near, and
  /// who goes over the rows afterwards, from the first on, again begins with what is near.
  template <class Body>
  void for_each(const Body& body) const {
    parallel_for(count(), 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t chunk = last - 1; chunk >= first; --chunk) body(chunk);
    });
  }
  /// Calls body(begin, end) for the blocks of a chunk, at most kBlockRows rows each, in order.
  template <class Body>
  void for_each_block(std::int64_t chunk, const Body& body) const {
    for (std::int64_t r = begin(chunk); r < begin(chunk + 1); r += kBlockRows)
      body(r, std::min(r + kBlockRows, begin(chunk + 1)));
  }
};

/// totals[c] = sum over all rows of term(r, c).
template <class S, class Term>
std::vector<Pair<double>> sum_columns(std::int64_t rows, std::int64_t columns, const Term& term) {
  const Chunks chunks{rows};
  const auto width = static_cast<std::size_t>(columns);
  std::vector<Pair<double>> partial(static_cast<std::size_t>(chunks.count()) * width);
  chunks.for_each([&](std::int64_t chunk) {
    std::vector<S> sums(2 * width);
    Pair<double>* to = partial.data() + chunk * columns;
    chunks.for_each_block(chunk, [&](std::int64_t begin, std::int64_t end) {
      sum_block_rows(begin, end, columns, term, sums.data(), sums.data() + columns);
      for (std::size_t c = 0; c < width; ++c) {
        to[c].first += static_cast<double>(sums[c]);
        to[c].second += static_cast<double>(sums[width + c]);
      }
    });
  });
  for (std::size_t i = width; i < partial.size(); ++i) {
    partial[i % width].first += partial[i].first;
    partial[i % width].second += partial[i].second;
  }
  partial.resize(width);
  return partial;
}

}  // namespace brigade::cpu
