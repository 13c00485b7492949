// SPDX-License-Identifier: MIT
// dist/staged_moves.cpp - every collective is: fill a piece, pass a gate, read.
#include "dist/staged_moves.h"

#include <algorithm>

namespace brigade::dist {
namespace {

std::byte* element(const Tensor& t, std::int64_t i) { return t.raw() + i * t.item_bytes(); }

// What puts elements [begin, begin + n) of t into staging memory.
auto fill_from(Staging& staging, const Tensor& t) {
  return [&staging, &t](std::byte* to, std::int64_t begin, std::int64_t n) {
    staging.copy(to, element(t, begin), n * t.item_bytes());
  };
}

// The same for each of t's blocks (one a rank), side by side.
auto fill_blocks_from(Staging& staging, const Tensor& t) {
  return [&staging, &t](std::byte* to, std::int64_t begin, std::int64_t n) {
    const std::int64_t block = t.numel() / staging.size(), bytes = n * t.item_bytes();
    for (int r = 0; r < staging.size(); ++r)
      staging.copy(to + r * bytes, element(t, r * block + begin), bytes);
  };
}

}  // namespace

// Piece after piece: fill(staging memory, begin, n), a gate, read(begin, n) with the ranks' pieces in at(). The two
// halves take turns, so that one gate a piece is enough: who has passed it has read the piece before. `item_bytes` is
// what an element takes there, `bytes` what all ranks must agree on.
template <class Fill, class Read>
void StagedMoves::pieces(std::int64_t count, std::int64_t item_bytes, std::int64_t bytes, const Fill& fill,
                         const Read& read) {
  const std::int64_t piece = staging_.half_bytes() / item_bytes;
  BRIGADE_CHECK(piece > 0, "staging: too many ranks, ", staging_.size());
  std::int64_t begin = 0;
  do {  // Once for no elements, too: ranks that disagree about that would else wait at different gates.
    const std::int64_t n = std::min(piece, count - begin);
    fill(staging_.filling(), begin, n);
    staging_.gate(bytes);
    read(begin, n);
    begin += n;
  } while (begin < count);
}

// What every rank has filled, `offset` bytes further.
std::span<const std::byte* const> StagedMoves::sources(std::int64_t offset) {
  sources_.clear();
  for (int r = 0; r < staging_.size(); ++r) sources_.push_back(staging_.at(r) + offset);
  return sources_;
}

void StagedMoves::broadcast(Tensor& t, int root) {
  const bool here = staging_.rank() == root;
  pieces(
      t.numel(), t.item_bytes(), t.bytes(),
      [&](std::byte* to, std::int64_t begin, std::int64_t n) {
        if (here) staging_.copy(to, element(t, begin), n * t.item_bytes());
      },
      [&](std::int64_t begin, std::int64_t n) {
        if (!here) staging_.copy(element(t, begin), staging_.at(root), n * t.item_bytes());
      });
}

void StagedMoves::all_reduce(Tensor& t, Reduce op) {
  const int rank = staging_.rank(), size = staging_.size();
  const std::int64_t item = t.item_bytes();
  const bool whole = size == 2 || t.bytes() <= staging_.whole_bytes();
  pieces(t.numel(), item, t.bytes(), fill_from(staging_, t), [&](std::int64_t begin, std::int64_t n) {
    if (whole) {
      staging_.reduce(sources(0), element(t, begin), t.dtype(), n, op);
      return;
    }
    // Each slice has one rank that reads it, so that its result may take the place of that rank's copy.
    const auto [first, last] = slice_of(n, item, rank, size);
    staging_.reduce(sources(first * item), staging_.at(rank) + first * item, t.dtype(), last - first, op);
    staging_.gate_again();
    for (int r = 0; r < size; ++r) {
      const auto [from, to] = slice_of(n, item, r, size);
      staging_.copy(element(t, begin + from), staging_.at(r) + from * item, (to - from) * item);
    }
  });
}

void StagedMoves::reduce(Tensor& t, Reduce op, int root) {
  pieces(t.numel(), t.item_bytes(), t.bytes(), fill_from(staging_, t),
         [&](std::int64_t begin, std::int64_t n) {
           if (staging_.rank() == root) staging_.reduce(sources(0), element(t, begin), t.dtype(), n, op);
         });
}

void StagedMoves::reduce_scatter(const Tensor& t, Tensor& out, Reduce op) {
  const std::int64_t item = t.item_bytes();
  pieces(out.numel(), item * staging_.size(), t.bytes(), fill_blocks_from(staging_, t),
         [&](std::int64_t begin, std::int64_t n) {
           staging_.reduce(sources(staging_.rank() * n * item), element(out, begin), t.dtype(), n, op);
         });
}

void StagedMoves::all_gather(const Tensor& t, Tensor& out) {
  pieces(t.numel(), t.item_bytes(), t.bytes(), fill_from(staging_, t),
         [&](std::int64_t begin, std::int64_t n) {
           for (int r = 0; r < staging_.size(); ++r)
             staging_.copy(element(out, r * t.numel() + begin), staging_.at(r), n * t.item_bytes());
         });
}

void StagedMoves::gather(const Tensor& t, Tensor& out, int root) {
  pieces(t.numel(), t.item_bytes(), t.bytes(), fill_from(staging_, t),
         [&](std::int64_t begin, std::int64_t n) {
           for (int r = 0; r < staging_.size() && staging_.rank() == root; ++r)
             staging_.copy(element(out, r * t.numel() + begin), staging_.at(r), n * t.item_bytes());
         });
}

void StagedMoves::scatter(const Tensor& t, Tensor& out, int root) {
  const std::int64_t item = out.item_bytes();
  const auto fill = [&, blocks = fill_blocks_from(staging_, t)](std::byte* to, std::int64_t begin,
                                                                std::int64_t n) {
    if (staging_.rank() == root) blocks(to, begin, n);
  };
  pieces(out.numel(), item * staging_.size(), out.bytes() * staging_.size(), fill,
         [&](std::int64_t begin, std::int64_t n) {
           staging_.copy(element(out, begin), staging_.at(root) + staging_.rank() * n * item, n * item);
         });
}

void StagedMoves::all_to_all(const Tensor& t, Tensor& out) {
  const std::int64_t block = t.numel() / staging_.size(), item = t.item_bytes();
  pieces(block, item * staging_.size(), t.bytes(), fill_blocks_from(staging_, t),
         [&](std::int64_t begin, std::int64_t n) {
           for (int r = 0; r < staging_.size(); ++r)
             staging_.copy(element(out, r * block + begin), staging_.at(r) + staging_.rank() * n * item,
                           n * item);
         });
}

}  // namespace brigade::dist
