// SPDX-License-Identifier: MIT
// kernels/ops_reduce.cpp - which dims are reduced, and what of nothing is an error.
#include "core/span.h"
#include "kernels/ops_check.h"

namespace brigade::ops {
namespace {

// Drops the dims marked in `reduced`, all of which have size 1.
Tensor drop(const Tensor& x, const Dims& reduced) {
  Tensor out = x;
  for (int d = x.dims() - 1; d >= 0; --d)
    if (reduced[d] != 0) out = out.squeeze(d);
  return out;
}

}  // namespace

std::string_view name(Reduction op) {
  switch (op) {
    case Reduction::sum:
      return "sum";
    case Reduction::mean:
      return "mean";
    case Reduction::max:
      return "max";
    case Reduction::min:
      return "min";
    case Reduction::prod:
      return "prod";
  }
  return "invalid reduction";
}

Tensor reduce(Reduction op, const Tensor& x, const Dims& dims, KeepDims keep) {
  const Span span(name(op));
  check_defined(name(op), x);
  const bool extreme = op == Reduction::max || op == Reduction::min;
  BRIGADE_CHECK(op != Reduction::mean || is_floating(x.dtype()), "mean: needs a floating dtype; got ", x);
  BRIGADE_CHECK(extreme || x.dtype() != DType::boolean, name(op), ": is not defined for bool; got ", x,
                "; use cast");

  Dims reduced = Dims::filled(x.dims(), dims.empty() ? 1 : 0);
  for (std::int64_t dim : dims) {
    const int d = normalize_dim(name(op), dim, x.dims());
    BRIGADE_CHECK(reduced[d]++ == 0, name(op), ": each dim once; got ", dims);
  }
  Shape shape = x.shape();
  for (int d = 0; d < x.dims(); ++d)
    if (reduced[d] != 0) shape[d] = 1;
  BRIGADE_CHECK(!extreme || x.numel() > 0 || numel(shape) == 0, name(op),
                ": of no elements does not exist; got ", x);

  Tensor out = Tensor::empty(shape, x.dtype(), x.device(), x.memory_format());
  kernels(x.device()).reduce(op, x, out);
  return keep == KeepDims::yes ? out : drop(out, reduced);
}

Tensor argmax(const Tensor& x, std::int64_t dim, KeepDims keep) {
  const Span span("argmax");
  check_defined("argmax", x);
  const int d = normalize_dim("argmax", dim, x.dims());
  Shape shape = x.shape();
  shape[d] = 1;
  BRIGADE_CHECK(x.shape()[d] > 0 || numel(shape) == 0, "argmax: of no elements does not exist; got ", x);
  Tensor out = Tensor::empty(shape, DType::i64, x.device());
  kernels(x.device()).argmax(x, d, out);
  return keep == KeepDims::yes ? out : out.squeeze(d);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined("sum_to", x);
  if (x.shape() == shape) return x;
  BRIGADE_CHECK(shape.size() <= x.dims() && broadcast_shapes("sum_to", x.shape(), shape) == x.shape(),
                "sum_to: the shape must broadcast to x's; got ", x, " and ", shape);
  // Dims that broadcasting added in front, or stretched from 1.
  Dims stretched;
  const int added = x.dims() - shape.size();
  for (int d = 0; d < x.dims(); ++d)
    if (d < added || (shape[d - added] == 1 && x.shape()[d] != 1)) stretched.push_back(d);
  return reshape(reduce(Reduction::sum, x, stretched, KeepDims::yes), shape);
}

void sum_of_squares(const Tensor& x, Tensor& sum) {
  const Span span("sum_of_squares");
  check_floating("sum_of_squares", x);
  check_one("sum_of_squares", "sum", sum, DType::f64, x.device());
  kernels(x.device()).sum_of_squares(x, sum);
  sum.bump_version();
}

double sum_of_squares(const Tensor& x) {
  check_floating("sum_of_squares", x);
  Tensor sum = Tensor::empty({1}, DType::f64, x.device());
  sum_of_squares(x, sum);
  return sum.item();
}

}  // namespace brigade::ops
