// SPDX-License-Identifier: MIT
// kernels/cuda/reduce.cpp - reductions. How a long one is cut into pieces depends on shapes alone, never on the device:
// ranks on unlike GPUs get the same bits.
#include <algorithm>
#include <limits>

#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {
namespace {

// Of x's walk, which is tensor 0 of a Split, and of out's, which is tensor 1.
device::Strided<2> kept_walk(const Walk<2>& walk) {
  device::Strided<2> result = strided(walk);
  for (int d = 0; d < result.dims; ++d) std::swap(result.stride[0][d], result.stride[1][d]);
  return result;
}
device::Strided<1> reduced_walk(const Walk<2>& walk) {
  const device::Strided<2> both = strided(walk);
  device::Strided<1> result{.numel = both.numel, .dims = both.dims};
  std::copy_n(both.size, kMaxDims, result.size);
  std::copy_n(both.stride[0], kMaxDims, result.stride[0]);
  return result;
}

// Blocks of some 8192 elements, at most a thousand.
std::int64_t pieces_of(const Split& s) {
  const std::int64_t kept = s.kept.numel, reduced = s.reduced.numel;
  const std::int64_t groups = s.inner_is_kept ? (kept + 31) / 32 : kept;
  const std::int64_t wanted = std::min<std::int64_t>(kept * reduced / 8192, 1024);
  return std::clamp<std::int64_t>(wanted / groups, 1, std::max<std::int64_t>(reduced / 256, 1));
}

void reduce_as(Reduction op, const Tensor& x, Tensor& out) {
  const Split s = split(x, out);
  BRIGADE_CHECK(s.kept.numel <= kMostElements && s.reduced.numel <= kMostElements, "reduce: at most ",
                kMostElements, " outputs of as many elements on a GPU; got ", x);
  const device::Reduce plan{.kept = kept_walk(s.kept),
                            .reduced = reduced_walk(s.reduced),
                            .inner_is_kept = s.inner_is_kept,
                            .pieces = pieces_of(s)};
  Tensor partial;
  if (plan.pieces > 1) partial = Tensor::empty({plan.pieces * s.kept.numel}, DType::f64, x.device());
  launched(device::reduce(op, x.dtype(), out.dtype(), x.raw(), out.raw(), plan,
                          partial.defined() ? partial.raw() : nullptr, stream_of(x)),
           "a reduction");
}

// What a reduction of nothing gives.
double of_nothing(Reduction op) {
  return op == Reduction::prod ? 1 : op == Reduction::mean ? std::numeric_limits<double>::quiet_NaN() : 0;
}

}  // namespace

void reduce(Reduction op, const Tensor& x, Tensor& out) {
  if (out.numel() == 0) return;
  if (x.numel() == 0)
    return fill(out, of_nothing(op));  // Largest and smallest of nothing: refused by ops::reduce.
  reduce_as(op, x, out);
}

void bias_grad(const Tensor& dy, Tensor& db) {
  BRIGADE_CHECK(is_floating(dy.dtype()), "bias_grad: needs a floating dtype; got ", dy.dtype());
  if (db.numel() == 0) return;
  if (dy.numel() == 0) return fill(db, 0);
  Tensor out = dy.dims() == 4 ? db.view({1, db.numel(), 1, 1}) : db.view({1, db.numel()});
  reduce_as(Reduction::sum, dy, out);
}

void argmax(const Tensor& x, int dim, Tensor& out) {
  const std::int64_t count = x.size(dim), step = x.stride(dim);
  const auto walk = plan_walk(Order::memory, out, count > 0 ? x.slice(dim, 0, 1) : x);
  for_each_part(walk, [&](const device::Strided<2>& part, const std::int64_t* from) {
    launched(device::argmax(x.dtype(), at(x, from[1]), count, step, out.data<std::int64_t>() + from[0], part,
                            stream_of(x)),
             "argmax");
  });
}

void sum_of_squares(const Tensor& x, Tensor& sum) {
  BRIGADE_CHECK(is_floating(x.dtype()), "sum_of_squares: needs a floating dtype; got ", x.dtype());
  if (x.numel() == 0) return fill(sum, 0);
  bool adds = false;
  for_each_part(plan_walk(Order::memory, x), [&](const device::Strided<1>& part, const std::int64_t* from) {
    const Tensor partial = Tensor::empty({device::kSquareBlocks}, DType::f64, x.device());
    launched(device::sum_of_squares(x.dtype(), at(x, from[0]), part, partial.data<double>(),
                                    sum.data<double>(), adds, stream_of(x)),
             "sum_of_squares");
    adds = true;
  });
}

}  // namespace brigade::cuda
