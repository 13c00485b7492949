// SPDX-License-Identifier: MIT
// dist/algorithms/ring.cpp - the bucket brigade: ranks stand in a ring, and slices are passed to the right.
// See P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
// Read before: dist/transport.h, dist/algorithms/algorithms.h. Read next: dist/bucket_plan.h.
#include "dist/algorithms/algorithms.h"
#include "dist/reduce_buffers.h"

namespace brigade::dist {
namespace {

int wrap(int k, int size) { return ((k % size) + size) % size; }

}  // namespace

Tensor ring_slice(const Tensor& t, int k, int size) {
  return t.slice(0, t.numel() * k / size, t.numel() * (k + 1) / size);
}

// t is cut into p slices. In step s every rank passes one slice on and adds the one that comes from its left:
//
//   p = 3         rank 0 sends   rank 1 sends   rank 2 sends
//   step 0        slice 2        slice 0        slice 1         its own
//   step 1        slice 1        slice 2        slice 0         own + what came in step 0
//
// Slice k starts on rank k+1, collects every rank's share on its way round, and is complete on rank k after
// p-1 steps of n/p bytes: (p-1) α + (p-1)/p nβ. No algorithm can send fewer bytes.
void ring_reduce_scatter(Transport& transport, Tensor& t, Reduce op) {
  const int rank = transport.rank(), size = transport.size();
  const int left = wrap(rank - 1, size), right = wrap(rank + 1, size);
  for (int step = 0; step < size - 1; ++step) {
    const Tensor sent = ring_slice(t, wrap(rank - 1 - step, size), size);
    Tensor mine = ring_slice(t, wrap(rank - 2 - step, size), size);
    Tensor received = Tensor::empty(mine.shape(), mine.dtype());
    transport.send_recv(sent, right, received, left);
    accumulate(mine, received, op);
  }
}

// The same way round without adding: in step s every rank passes on the complete slice it got last, its own first.
void ring_all_gather(Transport& transport, Tensor& t) {
  const int rank = transport.rank(), size = transport.size();
  const int left = wrap(rank - 1, size), right = wrap(rank + 1, size);
  for (int step = 0; step < size - 1; ++step) {
    const Tensor sent = ring_slice(t, wrap(rank - step, size), size);
    Tensor received = ring_slice(t, wrap(rank - 1 - step, size), size);
    transport.send_recv(sent, right, received, left);
  }
}

// 2 (p-1) α + 2 (p-1)/p nβ: almost independent of p for long messages, but p steps of latency for short ones.
void ring_all_reduce(Transport& transport, Tensor& t, Reduce op) {
  ring_reduce_scatter(transport, t, op);
  ring_all_gather(transport, t);
}

}  // namespace brigade::dist
