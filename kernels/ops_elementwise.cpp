// SPDX-License-Identifier: MIT
// kernels/ops_elementwise.cpp - broadcasting and dtype rules of the elementwise operations.
#include <cmath>

#include "core/graph.h"
#include "core/span.h"
#include "kernels/ops_check.h"

namespace brigade::ops {
namespace {

bool is_comparison(Binary op) { return op >= Binary::eq && op <= Binary::ge; }
bool floats_only(Binary op) { return op == Binary::pow || op >= Binary::relu_grad; }
// Bool knows or (add), and (mul), min, max and the comparisons.
bool takes_bool(Binary op) {
  return is_comparison(op) || op == Binary::add || op == Binary::mul || op == Binary::min ||
         op == Binary::max;
}

void check_dtype(Binary op, const Tensor& x) {
  BRIGADE_CHECK(!floats_only(op) || is_floating(x.dtype()), name(op), ": needs a floating dtype; got ", x);
  BRIGADE_CHECK(takes_bool(op) || x.dtype() != DType::boolean, name(op), ": is not defined for bool; got ",
                x);
}

// A scalar operand must be a value of the tensor's dtype, or 3 * 0.5 would silently be 3 * 0.
void check_scalar(Binary op, const Tensor& a, double b) {
  BRIGADE_CHECK(is_floating(a.dtype()) || b == std::trunc(b), name(op), ": a ", a.dtype(),
                " tensor needs a whole number; got ", b, "; use cast");
}

// Elementwise results keep channels_last if an operand of full shape has it.
MemoryFormat format_of(const Shape& shape, std::initializer_list<const Tensor*> operands) {
  for (const Tensor* x : operands)
    if (x->shape() == shape && x->memory_format() == MemoryFormat::channels_last)
      return MemoryFormat::channels_last;
  return MemoryFormat::contiguous;
}

Tensor expanded(const Tensor& x, const Shape& shape) { return x.shape() == shape ? x : x.expand(shape); }

}  // namespace

std::string_view name(Unary op) {
  switch (op) {
    case Unary::neg:
      return "neg";
    case Unary::abs:
      return "abs";
    case Unary::exp:
      return "exp";
    case Unary::log:
      return "log";
    case Unary::sqrt:
      return "sqrt";
    case Unary::rsqrt:
      return "rsqrt";
    case Unary::tanh:
      return "tanh";
    case Unary::sigmoid:
      return "sigmoid";
    case Unary::relu:
      return "relu";
    case Unary::gelu:
      return "gelu";
    case Unary::logical_not:
      return "logical_not";
  }
  return "invalid unary op";
}

std::string_view name(Binary op) {
  switch (op) {
    case Binary::add:
      return "add";
    case Binary::sub:
      return "sub";
    case Binary::mul:
      return "mul";
    case Binary::div:
      return "div";
    case Binary::min:
      return "min";
    case Binary::max:
      return "max";
    case Binary::pow:
      return "pow";
    case Binary::eq:
      return "eq";
    case Binary::ne:
      return "ne";
    case Binary::lt:
      return "lt";
    case Binary::le:
      return "le";
    case Binary::gt:
      return "gt";
    case Binary::ge:
      return "ge";
    case Binary::relu_grad:
      return "relu_grad";
    case Binary::sigmoid_grad:
      return "sigmoid_grad";
    case Binary::tanh_grad:
      return "tanh_grad";
    case Binary::gelu_grad:
      return "gelu_grad";
  }
  return "invalid binary op";
}

Tensor unary(Unary op, const Tensor& x) {
  const Span span(name(op), [&] { return SpanDetails{{"x", x.shape()}}; });
  check_defined(name(op), x);
  const bool any_dtype = op == Unary::logical_not;
  const bool any_number = op == Unary::neg || op == Unary::abs || op == Unary::relu;
  BRIGADE_CHECK(any_dtype || is_floating(x.dtype()) || (any_number && x.dtype() != DType::boolean), name(op),
                ": needs a ", any_number ? "number" : "floating", " dtype; got ", x);
  Tensor out = Tensor::empty(x.shape(), op == Unary::logical_not ? DType::boolean : x.dtype(), x.device(),
                             x.memory_format());
  kernels(x.device()).unary(op, x, out);
  return out;
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  const Span span(name(op), [&] { return SpanDetails{{"a", a.shape()}, {"b", b.shape()}}; });
  check_same_kind(name(op), a, b);
  check_dtype(op, a);
  const Shape shape = broadcast_shapes(name(op), a.shape(), b.shape());
  Tensor out = Tensor::empty(shape, is_comparison(op) ? DType::boolean : a.dtype(), a.device(),
                             format_of(shape, {&a, &b}));
  kernels(a.device()).binary(op, expanded(a, shape), expanded(b, shape), out);
  return out;
}

Tensor binary(Binary op, const Tensor& a, double b) {
  const Span span(name(op));
  check_defined(name(op), a);
  check_dtype(op, a);
  check_scalar(op, a, b);
  Tensor out =
      Tensor::empty(a.shape(), is_comparison(op) ? DType::boolean : a.dtype(), a.device(), a.memory_format());
  kernels(a.device()).binary_scalar(op, a, b, out);
  return out;
}

void binary_(Binary op, Tensor& out, const Tensor& b) {
  const Span span(name(op));
  check_same_kind(name(op), out, b);
  check_dtype(op, out);
  check_writable(name(op), out);
  BRIGADE_CHECK(!is_comparison(op) || out.dtype() == DType::boolean, name(op),
                ": in place it would write bool into ", out, "; use binary");
  BRIGADE_CHECK(broadcast_shapes(name(op), out.shape(), b.shape()) == out.shape(), name(op),
                ": in place, the second operand must broadcast to the first; got ", out, " and ", b);
  kernels(out.device()).binary(op, out, expanded(unaliased(b, out), out.shape()), out);
  out.bump_version();
}

void binary_(Binary op, Tensor& out, double b) {
  const Span span(name(op));
  check_defined(name(op), out);
  check_dtype(op, out);
  check_scalar(op, out, b);
  check_writable(name(op), out);
  BRIGADE_CHECK(!is_comparison(op) || out.dtype() == DType::boolean, name(op),
                ": in place it would write bool into ", out, "; use binary");
  kernels(out.device()).binary_scalar(op, out, b, out);
  out.bump_version();
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Span span("where");
  check_defined("where", condition);
  check_same_kind("where", a, b);
  BRIGADE_CHECK(condition.dtype() == DType::boolean && condition.device() == a.device(),
                "where: condition must be bool on ", a.device(), "; got ", condition, " on ",
                condition.device());
  const Shape shape =
      broadcast_shapes("where", condition.shape(), broadcast_shapes("where", a.shape(), b.shape()));
  Tensor out = Tensor::empty(shape, a.dtype(), a.device(), format_of(shape, {&a, &b}));
  kernels(a.device()).where(expanded(condition, shape), expanded(a, shape), expanded(b, shape), out);
  return out;
}

Tensor dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream) {
  const Span span("dropout");
  BRIGADE_CHECK(
      x.device() == Device{} || !is_capturing(x.device()),
      "dropout: the host counts its random numbers, so that a captured step (--cuda-graph) would drop the "
      "same elements in each repetition; train without one of the two");
  check_floating("dropout", x);
  BRIGADE_CHECK(p >= 0 && p < 1, "dropout: p must lie in [0, 1); got ", p);
  Tensor out = empty_like(x);
  kernels(x.device()).dropout(seed, stream, p, x, out);
  return out;
}

}  // namespace brigade::ops
