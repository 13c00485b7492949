// SPDX-License-Identifier: MIT
// autograd/ops/shape_ops.cpp - derivatives of views, copies and casts: every element goes back where it came
// from. The gradient of a view is a view of dy where that is possible.
#include "autograd/ops/shape_ops.h"

#include <numeric>

#include "autograd/ops/support.h"
#include "kernels/ops.h"

namespace brigade {
namespace {

// Zeros shaped like the input of an operation that picked a part of it; the part is then filled with dy.
struct ZerosLike {
  explicit ZerosLike(const Tensor& x)
      : shape(x.shape()), dtype(x.dtype()), device(x.device()), format(x.memory_format()) {}
  Tensor make() const { return Tensor::zeros(shape, dtype, device, format); }

  Shape shape;
  DType dtype;
  Device device;
  MemoryFormat format;
};

std::vector<Tensor> values_of(const std::vector<Variable>& xs) {
  std::vector<Tensor> values;
  for (const Variable& x : xs) values.push_back(x.value());
  return values;
}

}  // namespace

// y = x, other sizes   =>   dx = dy with x's sizes
Variable reshape(const Variable& x, const Shape& shape) {
  return record("reshape", ops::reshape(x.value(), shape), {x},
                [x_shape = x.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::reshape(dy, x_shape));
                });
}

Variable flatten(const Variable& x, std::int64_t first_dim) {
  const int first = normalize_dim("flatten", first_dim, x.dims());
  Shape shape;
  for (int d = 0; d < first; ++d) shape.push_back(x.size(d));
  // Not -1: that could not be inferred for an empty batch.
  shape.push_back(
      std::accumulate(x.shape().begin() + first, x.shape().end(), std::int64_t{1}, std::multiplies<>()));
  return reshape(x, shape);
}

// y[order] = x   =>   dx = dy permuted by the inverse order
Variable permute(const Variable& x, const Dims& order) {
  const Tensor y = x.value().permute(order);
  Dims inverse = order;
  for (int i = 0; i < order.size(); ++i) inverse[normalize_dim("permute", order[i], order.size())] = i;
  return record("permute", y, {x}, [inverse](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, dy.permute(inverse));
  });
}

// Its own inverse.
Variable transpose(const Variable& x, std::int64_t dim0, std::int64_t dim1) {
  return record("transpose", x.value().transpose(dim0, dim1), {x},
                [dim0, dim1](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, dy.transpose(dim0, dim1));
                });
}

// y = x[begin : end : step]   =>   dx = dy at the picked positions, else 0
Variable slice(const Variable& x, std::int64_t dim, std::int64_t begin, std::int64_t end, std::int64_t step) {
  return record("slice", x.value().slice(dim, begin, end, step), {x},
                [zeros = ZerosLike(x.value()), dim, begin, end, step](const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  const Tensor dx = zeros.make();
                  Tensor picked = dx.slice(dim, begin, end, step);
                  ops::copy_(picked, dy);
                  out.give(0, dx);
                });
}

// y = x[index]   =>   dx = dy at that index, else 0
Variable select(const Variable& x, std::int64_t dim, std::int64_t index) {
  return record("select", x.value().select(dim, index), {x},
                [zeros = ZerosLike(x.value()), dim, index](const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  const Tensor dx = zeros.make();
                  Tensor picked = dx.select(dim, index);
                  ops::copy_(picked, dy);
                  out.give(0, dx);
                });
}

// y = x repeated along stretched dims   =>   dx = sum of dy over the repetitions
Variable expand(const Variable& x, const Shape& shape) {
  return record("expand", x.value().expand(shape), {x},
                [x_shape = x.shape()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::sum_to(dy, x_shape));
                });
}

Variable squeeze(const Variable& x, std::int64_t dim) {
  const int axis = normalize_dim("squeeze", dim, x.dims());
  return record("squeeze", x.value().squeeze(axis), {x}, [axis](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, dy.unsqueeze(axis));
  });
}

Variable unsqueeze(const Variable& x, std::int64_t dim) {
  const int axis = normalize_dim("unsqueeze", dim, x.dims() + 1);
  return record("unsqueeze", x.value().unsqueeze(axis), {x}, [axis](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, dy.squeeze(axis));
  });
}

// y = xs one after the other along dim   =>   dxᵢ = the slice of dy that came from xᵢ
Variable concat(const std::vector<Variable>& xs, std::int64_t dim) {
  const Tensor y = ops::concat(values_of(xs), dim);
  std::vector<std::int64_t> sizes;
  for (const Variable& x : xs) sizes.push_back(x.size(dim));
  return record("concat", y, xs, [sizes, dim](const Tensor& dy, Gradients& out) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < sizes.size(); begin += sizes[i++]) {
      const int input = static_cast<int>(i);
      if (out.wanted(input)) out.give(input, dy.slice(dim, begin, begin + sizes[i]));
    }
  });
}

// y[i] = xsᵢ along a new dim   =>   dxᵢ = dy[i]
Variable stack(const std::vector<Variable>& xs, std::int64_t dim) {
  const int count = static_cast<int>(xs.size());
  return record("stack", ops::stack(values_of(xs), dim), xs, [count, dim](const Tensor& dy, Gradients& out) {
    for (int i = 0; i < count; ++i)
      if (out.wanted(i)) out.give(i, dy.select(dim, i));
  });
}

// y = x with a margin of constants   =>   dx = dy without the margin
Variable pad(const Variable& x, const Dims& before, const Dims& after, double value) {
  return record("pad", ops::pad(x.value(), before, after, value), {x},
                [x_shape = x.shape(), before](const Tensor& dy, Gradients& out) {
                  if (!out.wanted(0)) return;
                  Tensor inner = dy;
                  for (int d = 0; d < x_shape.size(); ++d)
                    inner = inner.slice(d, before[d], before[d] + x_shape[d]);
                  out.give(0, inner);
                });
}

// y = x rounded to another dtype   =>   dx = dy converted back (rounding counts as the identity)
Variable cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = ops::cast(x.value(), dtype);
  if (!is_floating(dtype)) return y;  // Integers and bools have no gradient.
  return record("cast", y, {x}, [from = x.dtype()](const Tensor& dy, Gradients& out) {
    if (out.wanted(0)) out.give(0, ops::cast(dy, from));
  });
}

// y = x, other memory order   =>   dx = dy in x's memory order
Variable contiguous(const Variable& x, MemoryFormat format) {
  if (x.value().is_contiguous(format)) return x;
  return record("contiguous", ops::contiguous(x.value(), format), {x},
                [before = x.value().memory_format()](const Tensor& dy, Gradients& out) {
                  if (out.wanted(0)) out.give(0, ops::contiguous(dy, before));
                });
}

}  // namespace brigade
