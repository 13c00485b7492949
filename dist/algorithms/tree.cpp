// SPDX-License-Identifier: MIT
// dist/algorithms/tree.cpp - a binomial tree: sums flow down to rank 0, the result
// flows back up the same branches.
#include "dist/algorithms/algorithms.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {

// p = 6, towards the root:   distance 1:  1 → 0,  3 → 2,  5 → 4
//                            distance 2:  2 → 0
//                            distance 4:  4 → 0
// A rank receives from rank + distance as long as bit `distance` of its own number is 0; at its lowest 1 bit
// it sends and is done. Messages of one distance travel at the same time: ⌈log2 p⌉ steps down and as many up,
// each of the whole message, 2 ⌈log2 p⌉ (α + nβ).
void tree_all_reduce(Transport& transport, Tensor& t, Reduce op) {
  const int rank = transport.rank(), size = transport.size();
  Tensor received = Tensor::empty(t.shape(), t.dtype());

  int distance = 1;
  for (; distance < size && (rank & distance) == 0; distance *= 2) {
    if (rank + distance >= size) continue;  // That branch does not exist: p is no power of two.
    transport.recv(received, rank + distance);
    accumulate(t, received, op);
  }
  if (rank != 0) {
    transport.send(t, rank - distance);
    transport.recv(t, rank - distance);
  }
  // Back over the same branches, longest first: the far half of the tree starts as early as possible.
  for (distance /= 2; distance > 0; distance /= 2)
    if (rank + distance < size) transport.send(t, rank + distance);
}

}  // namespace brigade::dist
