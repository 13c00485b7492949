// SPDX-License-Identifier: MIT
// dist/algorithms/algorithms.h - all-reduce spelled out over send and recv, to read, to step through, and to
// choose by name. Cost: α seconds a message, β seconds a byte; p ranks, n bytes; arithmetic is not counted.
//
//   naive              2 (p-1) (α + nβ)            everything passes through rank 0
//   tree               2 ⌈log2 p⌉ (α + nβ)         fewest steps for tiny messages, each of the whole message
//   ring               2 (p-1) α + 2 (p-1)/p nβ    fewest bytes a rank can send; p steps of latency
//   halving_doubling   2 log2 p α + 2 (p-1)/p nβ   both, for powers of two; else 2 (α + nβ) more
//
// See R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH" (2005).
// Every element of the result is computed on exactly one rank and then copied: all ranks get the same bits.
#pragma once

#include <span>
#include <string_view>

#include "dist/transport.h"

namespace brigade::dist {

// The steps. `t` is 1-D and dense, of a dtype that is accumulated as such (no 16-bit floats); mean adds,
// without the division. all_reduce() below cares for both.
void naive_all_reduce(Transport& transport, Tensor& t, Reduce op);
void tree_all_reduce(Transport& transport, Tensor& t, Reduce op);
void ring_all_reduce(Transport& transport, Tensor& t, Reduce op);
void halving_doubling_all_reduce(Transport& transport, Tensor& t, Reduce op);

/// The two halves of a ring. After the first, slice `rank` of t is reduced on each rank and the rest of t is
/// garbage; the second copies slice r of rank r to all. Slices: ring_slice().
void ring_reduce_scatter(Transport& transport, Tensor& t, Reduce op);
void ring_all_gather(Transport& transport, Tensor& t);
/// Slice k of t cut into `size` slices that differ by at most one element. A view.
Tensor ring_slice(const Tensor& t, int k, int size);

using AllReduceSteps = void (*)(Transport& transport, Tensor& t, Reduce op);

struct Algorithm {
  std::string_view name;
  AllReduceSteps steps;
};
/// naive, tree, ring, halving_doubling.
std::span<const Algorithm> algorithms();
/// Throws Error that lists the choices.
const Algorithm& find_algorithm(std::string_view name);

/// A complete all-reduce with these steps, of a dense tensor of any shape: 16-bit floats travel as f32 and are rounded
/// once; mean divides.
void all_reduce(AllReduceSteps steps, Transport& transport, Tensor& t, Reduce op);

/// `inner` with its all_reduce replaced.
std::unique_ptr<Transport> make_algorithm_transport(std::unique_ptr<Transport> inner,
                                                    const Algorithm& algorithm);

}  // namespace brigade::dist
