// SPDX-License-Identifier: MIT
// dist/algorithms/naive.cpp - everybody sends to rank 0, which adds and answers. The yardstick.
#include "dist/algorithms/algorithms.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {

// p = 3:   step 1  1 ──t──> 0   0 adds        step 3  0 ──sum──> 1
//          step 2  2 ──t──> 0   0 adds        step 4  0 ──sum──> 2
// 2 (p-1) messages of n bytes, one after another, all through rank 0's one wire: 2 (p-1) (α + nβ).
void naive_all_reduce(Transport& transport, Tensor& t, Reduce op) {
  if (transport.rank() != 0) {
    transport.send(t, 0);
    transport.recv(t, 0);
    return;
  }
  Tensor received = Tensor::empty(t.shape(), t.dtype());
  for (int from = 1; from < transport.size(); ++from) {
    transport.recv(received, from);
    accumulate(t, received, op);
  }
  for (int to = 1; to < transport.size(); ++to) transport.send(t, to);
}

}  // namespace brigade::dist
