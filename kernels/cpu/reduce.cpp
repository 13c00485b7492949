// SPDX-License-Identifier: MIT
// kernels/cpu/reduce.cpp - reductions over any dims and strides. After merging dims there are two cases: the dim
// along which memory is dense is reduced (sum a run into lanes), or it is kept (add rows to a row of totals).
// Long reductions to few outputs are cut into pieces whose size depends on the shape alone and whose totals are
// folded in order, so the result is the same for any number of threads. Totals are wide: double or i64.
#include "kernels/functor/reduce.h"

#include <vector>

#include "kernels/cpu/basic.h"
#include "kernels/cpu/walk.h"

namespace brigade::cpu {
namespace {

constexpr std::int64_t kPiece = 64 * 1024;  // Elements of x in one piece.
constexpr int kLanes = 16;                  // Independent totals of a run: two AVX-512 registers of doubles.
constexpr std::int64_t kColumns = 256;      // Totals kept at once: 2 KiB, in L1.

// Folds x[0], x[stride], … into `total`.
template <class F, class Wide, class T>
Wide fold_run(F f, Wide total, const T* x, std::int64_t count, std::int64_t stride) {
  std::int64_t i = 0;
  if (stride == 1 && count >= 2 * kLanes) {
    Wide lanes[kLanes];
    for (Wide& lane : lanes) lane = F::template start<Wide>();
    for (; i + kLanes <= count; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] = f(lanes[l], convert<Wide>(x[i + l]));
    for (const Wide lane : lanes) total = f(total, lane);
  }
  for (; i < count; ++i) total = f(total, convert<Wide>(x[i * stride]));
  return total;
}

// totals[piece][kept position], each over its piece of the reduced positions.
template <class F, class T, class Wide>
void reduce_runs(F f, const Split& s, const T* x, std::int64_t pieces, Wide* totals) {
  const std::int64_t kept = s.kept.numel, reduced = s.reduced.numel, length = (reduced + pieces - 1) / pieces;
  parallel_for(
      kept * pieces, std::max<std::int64_t>(1, kGrain / length), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t piece = begin / kept; piece * kept < end; ++piece) {
          const std::int64_t first = std::max(begin, piece * kept), last = std::min(end, (piece + 1) * kept);
          const auto one = [&](std::int64_t k, const T* start) {
            Wide total = F::template start<Wide>();
            for_each_run(
                s.reduced, piece * length, std::min(reduced, (piece + 1) * length),
                [&](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                  total = fold_run(f, total, start + at[0], count, stride[0]);
                });
            totals[piece * kept + k] = total;
          };
          for_each_run(
              s.kept, first - piece * kept, last - piece * kept,
              [&](std::int64_t k, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                for (std::int64_t i = 0; i < count; ++i) one(k + i, x + at[0] + i * stride[0]);
              });
        }
      });
}

// The same where the innermost kept dim is the innermost of all: rows are folded into a row of totals.
template <class F, class T, class Wide>
void reduce_rows(F f, const Split& s, const T* x, std::int64_t pieces, Wide* totals) {
  const std::int64_t kept = s.kept.numel, reduced = s.reduced.numel, length = (reduced + pieces - 1) / pieces;
  const std::int64_t width = s.kept.inner().size, chunks = (width + kColumns - 1) / kColumns;
  const std::int64_t items = pieces * (kept / width) * chunks;
  parallel_for(
      items, std::max<std::int64_t>(1, kGrain / (length * std::min(width, kColumns))),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) {
          const std::int64_t column = item % chunks * kColumns, outer = item / chunks % (kept / width);
          const std::int64_t piece = item / chunks / (kept / width);
          const std::int64_t columns = std::min(kColumns, width - column), k = outer * width + column;
          Wide* row = totals + piece * kept + k;
          std::fill_n(row, columns, F::template start<Wide>());
          const T* start = x;
          std::int64_t step = 1;
          for_each_run(s.kept, k, k + 1,
                       [&](std::int64_t, const std::int64_t* at, std::int64_t, const std::int64_t* stride) {
                         start = x + at[0];
                         step = stride[0];
                       });
          for_each_run(
              s.reduced, piece * length, std::min(reduced, (piece + 1) * length),
              [&](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                for (std::int64_t i = 0; i < count; ++i) {
                  const T* from = start + at[0] + i * stride[0];
                  if (step == 1)
                    for (std::int64_t c = 0; c < columns; ++c) row[c] = f(row[c], convert<Wide>(from[c]));
                  else
                    for (std::int64_t c = 0; c < columns; ++c)
                      row[c] = f(row[c], convert<Wide>(from[c * step]));
                }
              });
        }
      });
}

template <class F, class T>
void reduce_as(F f, const Tensor& x, Tensor& out) {
  using Wide = wide_t<T>;
  if (out.numel() == 0) return;
  if (x.numel() == 0) return fill(out, convert<double>(f.finish(F::template start<Wide>(), 0)));
  const Split s = split(x, out);
  const std::int64_t kept = s.kept.numel, reduced = s.reduced.numel;
  const std::int64_t pieces =
      std::clamp<std::int64_t>(x.numel() / kPiece / kept, 1, std::min<std::int64_t>(reduced, 64));
  std::vector<Wide> totals(static_cast<std::size_t>(pieces * kept));
  if (s.inner_is_kept)
    reduce_rows(f, s, x.data<T>(), pieces, totals.data());
  else
    reduce_runs(f, s, x.data<T>(), pieces, totals.data());

  T* to = out.data<T>();
  for_each_run(s.kept, 0, kept,
               [&](std::int64_t k, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
                 for (std::int64_t i = 0; i < count; ++i) {
                   Wide total = totals[static_cast<std::size_t>(k + i)];
                   for (std::int64_t p = 1; p < pieces; ++p)
                     total = f(total, totals[static_cast<std::size_t>(p * kept + k + i)]);
                   to[at[1] + i * stride[1]] = convert<T>(f.finish(total, reduced));
                 }
               });
}

}  // namespace

void reduce(Reduction op, const Tensor& x, Tensor& out) {
  functor::dispatch_reduction(op, [&](auto f) {
    dispatch(x.dtype(), [&](auto tag) { reduce_as<decltype(f), typename decltype(tag)::type>(f, x, out); });
  });
}

void argmax(const Tensor& x, int dim, Tensor& out) {
  const std::int64_t count = x.size(dim), step = x.stride(dim);
  dispatch(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    auto* to = out.data<std::int64_t>();
    const auto walk = plan_walk(Order::memory, out, count > 0 ? x.slice(dim, 0, 1) : x);
    parallel_for(walk.numel, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(count, 1)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for_each_run(
                       walk, begin, end,
                       [&](std::int64_t, const std::int64_t* at, std::int64_t n, const std::int64_t* stride) {
                         for (std::int64_t i = 0; i < n; ++i) {
                           const T* values = from + at[1] + i * stride[1];
                           auto best = convert<compute_t<T>>(values[0]);
                           std::int64_t found = 0;
                           for (std::int64_t k = 1; k < count; ++k) {
                             const auto value = convert<compute_t<T>>(values[k * step]);
                             if (!functor::beats(value, best)) continue;
                             best = value;
                             found = k;
                           }
                           to[at[0] + i * stride[0]] = found;
                         }
                       });
                 });
  });
}

void sum_of_squares(const Tensor& x, Tensor& sum) {
  constexpr std::int64_t kBlock = 4096;
  const auto walk = plan_walk(Order::memory, x);
  const std::int64_t blocks = (walk.numel + kBlock - 1) / kBlock;
  std::vector<double> totals(static_cast<std::size_t>(blocks));
  dispatch(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    parallel_for(blocks, kGrain / kBlock, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        double lanes[kLanes] = {};
        for_each_run(
            walk, b * kBlock, std::min(walk.numel, (b + 1) * kBlock),
            [&](std::int64_t, const std::int64_t* at, std::int64_t count, const std::int64_t* stride) {
              const T* values = from + at[0];
              std::int64_t i = 0;
              if (stride[0] == 1)
                for (; i + kLanes <= count; i += kLanes)
                  for (int l = 0; l < kLanes; ++l) {
                    const auto value = convert<double>(values[i + l]);
                    lanes[l] += value * value;
                  }
              for (; i < count; ++i) {
                const auto value = convert<double>(values[i * stride[0]]);
                lanes[0] += value * value;
              }
            });
        double total = 0;
        for (const double lane : lanes) total += lane;
        totals[static_cast<std::size_t>(b)] = total;
      }
    });
  });
  double total = 0;
  for (const double part : totals) total += part;
  *sum.data<double>() = total;
}

}  // namespace brigade::cpu
