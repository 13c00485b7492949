// SPDX-License-Identifier: MIT
// kernels/cpu/attention.cpp - attention without a matrix of all scores (Dao et al., "FlashAttention: fast and
// memory-efficient exact attention with IO-awareness", NeurIPS 2022): a few queries at a time against all keys of their
// head, so that scores stay in the second cache, and backward computes them again. A head is one thread's, and all adds
// up in a fixed order: the same bits for any number of threads. Formulas: kernels/reference/attention.cpp.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/structured.h"
#include "kernels/functor/convert.h"

namespace brigade::cpu {
namespace {

constexpr std::int64_t kRows =
    16;  // Queries at a time, and what all sizes are rounded up to: no loop has a tail.

std::int64_t rounded_up(std::int64_t n) { return (n + kRows - 1) / kRows * kRows; }

template <class S>
inline constexpr int kLanes = 64 / static_cast<int>(sizeof(S));

// c[i, j] += sum over l < depth of a[i, l] b[l, j], for i < m and j < n, multiples of kRows. b and c are row-major;
// a is read element by element, so its strides are free and a transposed one costs nothing.
template <class S>
void multiply(const S* a, std::int64_t a_row, std::int64_t a_column, const S* b, std::int64_t b_row, S* c,
              std::int64_t c_row, std::int64_t m, std::int64_t n, std::int64_t depth) {
  typedef S Vector __attribute__((vector_size(64)));  // As registers go: one, two or four.
  constexpr int kTogether = 8;                        // Sums that hide each other's latency.
  for (std::int64_t j = 0; j < n; j += kLanes<S>)
    for (std::int64_t i = 0; i < m; i += kTogether) {
      Vector sums[kTogether], line;
      for (int r = 0; r < kTogether; ++r) std::memcpy(&sums[r], c + (i + r) * c_row + j, sizeof(Vector));
      const S* factor = a + i * a_row;
      for (std::int64_t l = 0; l < depth; ++l, factor += a_column) {
        std::memcpy(&line, b + l * b_row + j, sizeof(Vector));
        for (int r = 0; r < kTogether; ++r) sums[r] += factor[r * a_row] * line;
      }
      for (int r = 0; r < kTogether; ++r) std::memcpy(c + (i + r) * c_row + j, &sums[r], sizeof(Vector));
    }
}

double power(double x) { return std::exp(x); }

// e^x for x up to 80 within two units in the last place, of which a compiler can make vectors: 2^n e^f, where n is the
// integer next to x / log 2, and e^f, |f| <= (log 2) / 2, its series up to f^7 / 7!. Adding 1.5 * 2^23 leaves n in the
// last bits of a float, from where it goes to the exponent. What is below the smallest normal float becomes 0.
float power(float x) {
  constexpr float kMagic = 0x1.8p23f, kLog2High = 0.693359375f, kLog2Low = -2.12194440e-4f;
  const float shifted = x * 1.44269504f + kMagic, n = shifted - kMagic;
  const float f = (x - n * kLog2High) - n * kLog2Low;
  float series = 1.0f / 5040;
  for (const float next : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    series = series * f + next;
  const auto bits = std::bit_cast<std::uint32_t>(series) + (std::bit_cast<std::uint32_t>(shifted) << 23);
  const float value = std::bit_cast<float>(bits);
  return x >= -87 ? value : x < -87 ? 0 : x;  // The last one: NaN.
}

// One head of a tensor: rows of `width` elements.
template <class T>
struct Head {
  T* at;
  std::int64_t row, width;
};

template <class T>
Head<T> head_of(const Tensor& t, std::int64_t number) {
  const std::int64_t n = number / t.size(1), h = number % t.size(1);
  return {t.data<T>() + n * t.stride(0) + h * t.stride(1), t.stride(2), t.size(3)};
}

// Rows [first, first + count) times `scale`, in the compute type, with zeros up to `wide` columns and kRows' multiple.
template <class T, class S>
void take_rows(const Head<T>& from, std::int64_t first, std::int64_t count, double scale, std::int64_t wide,
               std::vector<S>& to) {
  to.assign(static_cast<std::size_t>(rounded_up(count) * wide), S(0));
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t d = 0; d < from.width; ++d)
      to[static_cast<std::size_t>(r * wide + d)] =
          convert<S>(from.at[(first + r) * from.row + d]) * static_cast<S>(scale);
}

// All rows as columns: to[d, r].
template <class T, class S>
void take_columns(const Head<T>& from, std::int64_t count, std::vector<S>& to) {
  const std::int64_t room = rounded_up(count);
  to.assign(static_cast<std::size_t>(from.width * room), S(0));
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t d = 0; d < from.width; ++d)
      to[static_cast<std::size_t>(d * room + r)] = convert<S>(from.at[r * from.row + d]);
}

template <class T, class S>
void give_rows(const std::vector<S>& from, std::int64_t wide, std::int64_t first, std::int64_t count,
               double scale, const Head<T>& to) {
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t d = 0; d < to.width; ++d)
      to.at[(first + r) * to.row + d] =
          convert<T>(from[static_cast<std::size_t>(r * wide + d)] * static_cast<S>(scale));
}

// Turns the scores of a row of `room` (a multiple of the lanes) into exponentials, less the largest, of the first
// `visible` ones, and zeros. Returns {largest, sum}.
template <class S>
std::pair<S, S> exponentials(S* row, std::int64_t visible, std::int64_t room) {
  std::fill(row + visible, row + room, -std::numeric_limits<S>::infinity());
  S lanes[kLanes<S>];
  std::copy_n(row, kLanes<S>, lanes);
  for (std::int64_t j = kLanes<S>; j < room; j += kLanes<S>)
    for (int l = 0; l < kLanes<S>; ++l) lanes[l] = row[j + l] > lanes[l] ? row[j + l] : lanes[l];
  const S largest = *std::max_element(lanes, lanes + kLanes<S>);
  for (std::int64_t j = 0; j < room; ++j) row[j] = power(row[j] - largest);
  std::fill_n(lanes, kLanes<S>, S(0));
  for (std::int64_t j = 0; j < room; j += kLanes<S>)
    for (int l = 0; l < kLanes<S>; ++l) lanes[l] += row[j + l];
  S sum = 0;
  for (const S part : lanes) sum += part;
  return {largest, sum};
}

// How many queries from `first` on go together, and how many keys (rounded up) the last of them sees.
struct Block {
  std::int64_t first, count, room;

  std::int64_t visible(const AttentionOptions& options, std::int64_t keys, std::int64_t r) const {
    return options.causal ? first + r + 1 : keys;
  }
};

template <class F>
void for_each_block(std::int64_t queries, std::int64_t keys, const AttentionOptions& options, const F& f) {
  for (std::int64_t first = 0; first < queries; first += kRows) {
    const std::int64_t count = std::min(kRows, queries - first);
    f(Block{first, count, rounded_up(options.causal ? first + count : keys)});
  }
}

}  // namespace

void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
               Tensor& out, Tensor& log_sums) {
  const std::int64_t queries = q.size(2), keys = k.size(2), width = q.size(3), wide = rounded_up(width);
  const std::int64_t room = rounded_up(keys);
  dispatch_floating("attention", q.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using S = compute_t<T>;
    S* logs = log_sums.data<S>();
    parallel_for(q.size(0) * q.size(1), 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<S> columns, values, rows, sums;
      std::vector<S> scores(static_cast<std::size_t>(kRows * room));
      for (std::int64_t head = begin; head < end; ++head) {
        take_columns(head_of<T>(k, head), keys, columns);
        take_rows(head_of<T>(v, head), 0, keys, 1, wide, values);
        for_each_block(queries, keys, options, [&](const Block& block) {
          take_rows(head_of<T>(q, head), block.first, block.count, options.scale, wide, rows);
          std::fill(scores.begin(), scores.end(), S(0));
          multiply(rows.data(), wide, 1, columns.data(), room, scores.data(), room, kRows, block.room, width);
          S factors[kRows] = {};
          for (std::int64_t r = 0; r < block.count; ++r) {
            const auto [largest, sum] =
                exponentials(scores.data() + r * room, block.visible(options, keys, r), block.room);
            factors[r] = 1 / sum;
            logs[head * queries + block.first + r] = largest + std::log(sum);
          }
          sums.assign(static_cast<std::size_t>(kRows * wide), S(0));
          multiply(scores.data(), room, 1, values.data(), wide, sums.data(), wide, kRows, wide, block.room);
          for (std::int64_t i = 0; i < kRows * wide; ++i)
            sums[static_cast<std::size_t>(i)] *= factors[i / wide];
          give_rows(sums, wide, block.first, block.count, 1, head_of<T>(out, head));
        });
      }
    });
  });
}

void attention_grad(const Tensor& dout, const AttentionForward& forward, const AttentionOptions& options,
                    Tensor& dq, Tensor& dk, Tensor& dv) {
  const auto& [q, k, v, out, log_sums] = forward;
  const std::int64_t queries = q.size(2), keys = k.size(2), width = q.size(3), wide = rounded_up(width);
  const std::int64_t room = rounded_up(keys);
  dispatch_floating(
      "attention_grad", q.dtype(), [&, &q = q, &k = k, &v = v, &out = out, &log_sums = log_sums](auto tag) {
        using T = typename decltype(tag)::type;
        using S = compute_t<T>;
        const S* logs = log_sums.data<S>();
        parallel_for(q.size(0) * q.size(1), 1, [&](std::int64_t begin, std::int64_t end) {
          std::vector<S> k_columns, v_columns, k_rows, rows, slopes, results, dq_rows, dk_rows, dv_rows;
          std::vector<S> scores(static_cast<std::size_t>(kRows * room)), weights(scores.size());
          for (std::int64_t head = begin; head < end; ++head) {
            take_columns(head_of<T>(k, head), keys, k_columns);
            take_columns(head_of<T>(v, head), keys, v_columns);
            take_rows(head_of<T>(k, head), 0, keys, 1, wide, k_rows);
            dk_rows.assign(static_cast<std::size_t>(room * wide), S(0));
            dv_rows.assign(dk_rows.size(), S(0));
            for_each_block(queries, keys, options, [&](const Block& block) {
              take_rows(head_of<T>(q, head), block.first, block.count, options.scale, wide, rows);
              take_rows(head_of<T>(dout, head), block.first, block.count, 1, wide, slopes);
              take_rows(head_of<T>(out, head), block.first, block.count, 1, wide, results);
              std::fill(scores.begin(), scores.end(), S(0));
              std::fill(weights.begin(), weights.end(), S(0));
              multiply(rows.data(), wide, 1, k_columns.data(), room, scores.data(), room, kRows, block.room,
                       width);
              multiply(slopes.data(), wide, 1, v_columns.data(), room, weights.data(), room, kRows,
                       block.room, width);
              for (std::int64_t r = 0; r < kRows; ++r) {
                S *p = scores.data() + r * room, *dp = weights.data() + r * room;  // dp becomes ds.
                const std::int64_t visible = r < block.count ? block.visible(options, keys, r) : 0;
                if (visible > 0) {
                  S delta = 0;
                  for (std::int64_t d = 0; d < wide; ++d)
                    delta += slopes[static_cast<std::size_t>(r * wide + d)] *
                             results[static_cast<std::size_t>(r * wide + d)];
                  const S log_sum = logs[head * queries + block.first + r];
                  for (std::int64_t j = 0; j < visible; ++j) p[j] = power(p[j] - log_sum);
                  for (std::int64_t j = 0; j < visible; ++j) dp[j] = p[j] * (dp[j] - delta);
                }
                std::fill(p + visible, p + block.room, S(0));
                std::fill(dp + visible, dp + block.room, S(0));
              }
              multiply(scores.data(), 1, room, slopes.data(), wide, dv_rows.data(), wide, block.room, wide,
                       kRows);
              multiply(weights.data(), 1, room, rows.data(), wide, dk_rows.data(), wide, block.room, wide,
                       kRows);
              dq_rows.assign(static_cast<std::size_t>(kRows * wide), S(0));
              multiply(weights.data(), room, 1, k_rows.data(), wide, dq_rows.data(), wide, kRows, wide,
                       block.room);
              give_rows(dq_rows, wide, block.first, block.count, options.scale, head_of<T>(dq, head));
            });
            // The scale is in the rows of q already.
            give_rows(dk_rows, wide, 0, keys, 1, head_of<T>(dk, head));
            give_rows(dv_rows, wide, 0, keys, 1, head_of<T>(dv, head));
          }
        });
      });
}

}  // namespace brigade::cpu
