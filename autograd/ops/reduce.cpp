// SPDX-License-Identifier: MIT
// autograd/ops/reduce.cpp - derivatives of reductions: the gradient is stretched back over the reduced dims.
#include "autograd/ops/reduce.h"

#include "autograd/ops/support.h"

namespace brigade {
namespace {

// `shape` with size 1 at every reduced dim: what KeepDims::yes gives.
Shape kept_shape(std::string_view op, const Shape& shape, const Dims& dims) {
  if (dims.empty()) return Dims::filled(shape.size(), 1);
  Shape kept = shape;
  for (const std::int64_t dim : dims) kept[normalize_dim(op, dim, shape.size())] = 1;
  return kept;
}

}  // namespace

// y = sum over dims of x   =>   dx = dy at every reduced position: a view with strides of 0
Variable sum(const Variable& x, const Dims& dims, ops::KeepDims keep) {
  const Shape kept = kept_shape("sum", x.shape(), dims);
  return record("sum", ops::reduce(Reduction::sum, x.value(), dims, keep), {x},
                [shape = x.shape(), kept](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::reshape(dy, kept).expand(shape));
                });
}

// y = 1/n sum over dims of x   =>   dx = dy / n at every reduced position
Variable mean(const Variable& x, const Dims& dims, ops::KeepDims keep) {
  const Shape kept = kept_shape("mean", x.shape(), dims);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(numel(kept));
  return record("mean", ops::reduce(Reduction::mean, x.value(), dims, keep), {x},
                [shape = x.shape(), kept, count](const Tensor& dy, Gradients& out) {
                  // Divided before it is stretched: the small tensor is the cheap one.
                  if (out.wanted(0)) out.give(0, ops::reshape(ops::mul(dy, 1.0 / count), kept).expand(shape));
                });
}

// y = max over dim of x   =>   dx = dy where position == argmax, else 0
Variable max(const Variable& x, std::int64_t dim, ops::KeepDims keep) {
  const int axis = normalize_dim("max", dim, x.dims());
  const Tensor index = ops::argmax(x.value(), axis, ops::KeepDims::yes);
  return record("max", ops::reduce(Reduction::max, x.value(), {axis}, keep), {x},
                [index, axis, size = x.size(axis)](const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  // Positions along `axis`, shaped to broadcast against `index`: [1, .., size, .., 1].
                  Shape line = Dims::filled(index.dims(), 1);
                  line[axis] = size;
                  const Tensor position = ops::arange(size, DType::i64, dy.device()).view(line);
                  const Tensor first = ops::binary(Binary::eq, position, index);
                  const Tensor zero = ops::full(Shape(), 0, dy.dtype(), dy.device());
                  out.give(0, ops::where(first, ops::reshape(dy, index.shape()), zero));
                });
}

}  // namespace brigade
