// SPDX-License-Identifier: MIT
// kernels/ops_construct.cpp - making, copying, joining and reshaping tensors.
#include "core/span.h"
#include "kernels/ops_check.h"

namespace brigade::ops {

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor out = Tensor::empty(shape, dtype, device);
  fill_(out, value);
  return out;
}

Tensor arange(std::int64_t count, DType dtype, Device device) {
  BRIGADE_CHECK(count >= 0, "arange: count is not negative; got ", count);
  Tensor numbers = Tensor::empty({count}, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) numbers.data<std::int64_t>()[i] = i;
  return cast(numbers, dtype).to(device);
}

Tensor rand(const Shape& shape, Generator& generator, double low, double high, DType dtype, Device device) {
  Tensor out = Tensor::empty(shape, dtype, device);
  uniform_(out, generator, low, high);
  return out;
}

Tensor randn(const Shape& shape, Generator& generator, double mean, double std, DType dtype, Device device) {
  Tensor out = Tensor::empty(shape, dtype, device);
  normal_(out, generator, mean, std);
  return out;
}

void fill_(Tensor& out, double value) {
  const Span span("fill");
  check_writable("fill_", out);
  kernels(out.device()).fill(out, value);
  out.bump_version();
}

void uniform_(Tensor& out, Generator& generator, double low, double high) {
  check_floating("uniform_", out);
  check_writable("uniform_", out);
  BRIGADE_CHECK(low <= high, "uniform_: low must not exceed high; got ", low, " and ", high);
  kernels(out.device()).random_uniform(generator.seed, generator.take(), low, high, out);
  out.bump_version();
}

void normal_(Tensor& out, Generator& generator, double mean, double std) {
  check_floating("normal_", out);
  check_writable("normal_", out);
  BRIGADE_CHECK(std >= 0, "normal_: std must not be negative; got ", std);
  kernels(out.device()).random_normal(generator.seed, generator.take(), mean, std, out);
  out.bump_version();
}

void copy_(Tensor& out, const Tensor& x) {
  const Span span("copy");
  check_defined("copy_", x);
  check_writable("copy_", out);
  BRIGADE_CHECK(x.shape() == out.shape(), "copy_: shapes must be equal; got ", x, " into ", out);
  kernels(out.device()).copy(unaliased(x.to(out.device()), out), out);
  out.bump_version();
}

Tensor clone(const Tensor& x, MemoryFormat format) {
  const Span span("copy");
  check_defined("clone", x);
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device(), format);
  kernels(x.device()).copy(x, out);
  return out;
}

Tensor contiguous(const Tensor& x, MemoryFormat format) {
  check_defined("contiguous", x);
  return x.is_contiguous(format) ? x : clone(x, format);
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", x);
  if (x.dtype() == dtype) return x;
  const Span span("cast");
  Tensor out = Tensor::empty(x.shape(), dtype, x.device(), x.memory_format());
  kernels(x.device()).copy(x, out);
  return out;
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", x);
  return x.can_view(shape) ? x.view(shape) : clone(x).view(shape);
}

Tensor empty_like(const Tensor& x) {
  check_defined("empty_like", x);
  return Tensor::empty(x.shape(), x.dtype(), x.device(), x.memory_format());
}

Tensor concat(std::span<const Tensor> xs, std::int64_t dim) {
  const Span span("concat");
  BRIGADE_CHECK(!xs.empty(), "concat: needs at least one tensor");
  check_defined("concat", xs[0]);
  const int d = normalize_dim("concat", dim, xs[0].dims());
  Shape shape = xs[0].shape();
  shape[d] = 0;
  for (const Tensor& x : xs) {
    check_same_kind("concat", xs[0], x);
    bool fits = x.dims() == shape.size();
    for (int i = 0; fits && i < x.dims(); ++i) fits = i == d || x.shape()[i] == shape[i];
    BRIGADE_CHECK(fits, "concat: shapes must be equal but for dim ", d, "; got ", xs[0], " and ", x);
    shape[d] += x.shape()[d];
  }
  Tensor out = Tensor::empty(shape, xs[0].dtype(), xs[0].device(), xs[0].memory_format());
  std::int64_t at = 0;
  for (const Tensor& x : xs) {
    Tensor part = out.slice(d, at, at + x.shape()[d]);
    kernels(out.device()).copy(x, part);
    at += x.shape()[d];
  }
  return out;
}

Tensor stack(std::span<const Tensor> xs, std::int64_t dim) {
  BRIGADE_CHECK(!xs.empty(), "stack: needs at least one tensor");
  std::vector<Tensor> parts;
  for (const Tensor& x : xs) {
    check_same("stack", xs[0], x);
    parts.push_back(x.unsqueeze(dim));
  }
  return concat(parts, normalize_dim("stack", dim, xs[0].dims() + 1));
}

Tensor pad(const Tensor& x, const Dims& before, const Dims& after, double value) {
  const Span span("pad");
  check_defined("pad", x);
  BRIGADE_CHECK(before.size() == x.dims() && after.size() == x.dims(),
                "pad: one number a dim on each side; got ", x, " with ", before, " and ", after);
  Shape shape = x.shape();
  for (int d = 0; d < x.dims(); ++d) {
    BRIGADE_CHECK(before[d] >= 0 && after[d] >= 0, "pad: amounts are not negative; got ", before, " and ",
                  after);
    shape[d] += before[d] + after[d];
  }
  Tensor out = Tensor::empty(shape, x.dtype(), x.device(), x.memory_format());
  kernels(x.device()).fill(out, value);
  Tensor inside = out;
  for (int d = 0; d < x.dims(); ++d) inside = inside.slice(d, before[d], before[d] + x.shape()[d]);
  kernels(x.device()).copy(x, inside);
  return out;
}

}  // namespace brigade::ops
