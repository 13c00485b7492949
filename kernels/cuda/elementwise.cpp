// SPDX-License-Identifier: MIT
// kernels/cuda/elementwise.cpp - fill, copy, unary and binary operations, where, quantize: any strides.
#include "kernels/cuda/slots.h"
#include "kernels/cuda/walk.h"

namespace brigade::cuda {

void fill(Tensor& out, double value) {
  const cudaStream_t stream = stream_of(out);
  for_each_part(plan_walk(Order::memory, out), [&](const device::Strided<1>& part, const std::int64_t* from) {
    launched(device::fill(out.dtype(), at(out, from[0]), part, value, stream), "fill");
  });
}

void copy(const Tensor& x, Tensor& out) {
  const cudaStream_t stream = stream_of(out);
  for_each_part(plan_walk(Order::memory, out, x), [&](const device::Strided<2>& part,
                                                      const std::int64_t* from) {
    launched(device::copy(x.dtype(), out.dtype(), at(x, from[1]), at(out, from[0]), part, stream), "copy");
  });
}

void unary(Unary op, const Tensor& x, Tensor& out) {
  const cudaStream_t stream = stream_of(out);
  for_each_part(plan_walk(Order::memory, out, x),
                [&](const device::Strided<2>& part, const std::int64_t* from) {
                  launched(device::unary(op, x.dtype(), at(x, from[1]), at(out, from[0]), part, stream),
                           "a unary operation");
                });
}

void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& out) {
  const cudaStream_t stream = stream_of(out);
  for_each_part(plan_walk(Order::memory, out, a, b), [&](const device::Strided<3>& part,
                                                         const std::int64_t* from) {
    launched(device::binary(op, a.dtype(), at(a, from[1]), at(b, from[2]), 0, at(out, from[0]), part, stream),
             "a binary operation");
  });
}

void binary_scalar(Binary op, const Tensor& a, double b, Tensor& out) {
  const cudaStream_t stream = stream_of(out);
  // The walk has a place for b, which has no memory: a's stands in.
  for_each_part(
      plan_walk(Order::memory, out, a, a), [&](const device::Strided<3>& part, const std::int64_t* from) {
        launched(device::binary(op, a.dtype(), at(a, from[1]), nullptr, b, at(out, from[0]), part, stream),
                 "a binary operation");
      });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  const cudaStream_t stream = stream_of(out);
  const auto bytes = static_cast<int>(out.item_bytes());
  for_each_part(plan_walk(Order::memory, out, condition, a, b),
                [&](const device::Strided<4>& part, const std::int64_t* from) {
                  launched(device::where(bytes, condition.data<bool>() + from[1], at(a, from[2]),
                                         at(b, from[3]), at(out, from[0]), part, stream),
                           "where");
                });
}

void quantize(const Tensor& x, double scale, Tensor& out) {
  const cudaStream_t stream = stream_of(out);
  for_each_part(plan_walk(Order::memory, out, x),
                [&](const device::Strided<2>& part, const std::int64_t* from) {
                  launched(device::quantize(out.dtype(), x.data<float>() + from[1], static_cast<float>(scale),
                                            at(out, from[0]), part, stream),
                           "quantize");
                });
}

}  // namespace brigade::cuda
