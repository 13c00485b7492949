// SPDX-License-Identifier: MIT
// dist/algorithms/halving_doubling.cpp - the ring's bytes in the tree's number of steps (Rabenseifner).
#include <bit>
#include <vector>

#include "dist/algorithms/algorithms.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

struct Range {
  std::int64_t begin = 0, end = 0;
};

Tensor part(const Tensor& t, Range range) { return t.slice(0, range.begin, range.end); }

}  // namespace

// Works on q = 2^k ranks, the largest power of two in p. The p - q ranks too many fold in first: rank q + i
// gives its whole message to rank i and gets the result at the end, 2 (α + nβ) more.
//
// Halving    with partner rank ^ q/2, then rank ^ q/4, … rank ^ 1: the pair splits the range both still hold,
//            each sends the half it gives up and adds what it gets for the half it keeps: n/2, n/4, … n/q.
// Doubling   the same pairs in reverse order swap their complete parts, and ranges grow back.
//
// log2 q steps each way: 2 log2 q α + 2 (q-1)/q nβ.
void halving_doubling_all_reduce(Transport& transport, Tensor& t, Reduce op) {
  const int rank = transport.rank(), size = transport.size();
  const int q = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= q) {
    transport.send(t, rank - q);
    transport.recv(t, rank - q);
    return;
  }
  Tensor received = Tensor::empty(t.shape(), t.dtype());
  if (rank + q < size) {
    transport.recv(received, rank + q);
    accumulate(t, received, op);
  }

  struct Split {
    int partner;
    Range kept, given;
  };
  std::vector<Split> splits;  // For the way back.
  Range held{0, t.numel()};
  for (int distance = q / 2; distance > 0; distance /= 2) {
    const std::int64_t middle = held.begin + (held.end - held.begin) / 2;
    const Range lower{held.begin, middle}, upper{middle, held.end};
    const bool keeps_upper = (rank & distance) != 0;
    const Split split{rank ^ distance, keeps_upper ? upper : lower, keeps_upper ? lower : upper};
    Tensor incoming = part(received, split.kept);
    transport.send_recv(part(t, split.given), split.partner, incoming, split.partner);
    Tensor kept = part(t, split.kept);
    accumulate(kept, incoming, op);
    splits.push_back(split);
    held = split.kept;
  }

  for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
    Tensor incoming = part(t, split->given);
    transport.send_recv(part(t, split->kept), split->partner, incoming, split->partner);
  }
  if (rank + q < size) transport.send(t, rank + q);
}

}  // namespace brigade::dist
