// SPDX-License-Identifier: MIT
// kernels/functor/elementwise.h - the scalar maths of Unary and Binary, written once for every device.
// A functor works in the compute type (float for 16-bit floats). Integers wrap; integer division by
// zero gives 0 rather than a trap. Bool: add is or, mul is and. min and max return NaN if either side
// is NaN. Read before: kernels/functor/convert.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/functor/convert.h"
#include "kernels/parameters.h"

namespace brigade::functor {

// Functors that make sense for floats only say so; dispatch in the loops then skips the integer types.
struct AnyType {
  static constexpr bool kFloatsOnly = false;
};
struct FloatsOnly {
  static constexpr bool kFloatsOnly = true;
};

/// True if functor F may be given elements of type T.
template <class F, class T>
inline constexpr bool applies =
    !std::remove_reference_t<F>::kFloatsOnly || std::is_floating_point_v<compute_t<T>>;

/// What F makes of elements of type T: bool for comparisons and logical_not, else T.
template <class F, class T>
using unary_result_t =
    std::conditional_t<std::is_same_v<decltype(std::remove_reference_t<F>{}(double{})), bool>, bool, T>;
template <class F, class T>
using binary_result_t =
    std::conditional_t<std::is_same_v<decltype(std::remove_reference_t<F>{}(double{}, double{})), bool>, bool,
                       T>;

// Signed overflow is undefined in C++; unsigned arithmetic wraps and gives the same bits.
template <class T>
BRIGADE_HD std::uint64_t bits_of(T value) {
  return static_cast<std::uint64_t>(value);
}

// ---- Unary ------------------------------------------------------------------------------------------------
struct Neg : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(0 - bits_of(x));
    else
      return -x;
  }
};
struct Abs : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    if constexpr (std::is_unsigned_v<T>)
      return x;
    else if constexpr (std::is_integral_v<T>)
      return x < 0 ? Neg{}(x) : x;
    else
      return std::abs(x);
  }
};
struct Exp : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return std::exp(x);
  }
};
struct Log : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return std::log(x);
  }
};
struct Sqrt : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return std::sqrt(x);
  }
};
struct Rsqrt : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return T{1} / std::sqrt(x);
  }
};
struct Tanh : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return std::tanh(x);
  }
};
struct Sigmoid : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return T{1} / (T{1} + std::exp(-x));  // exp(-x) = inf for very negative x gives the right limit, 0.
  }
};
struct Relu : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return x < T{0} ? T{0} : x;  // This way round a NaN stays a NaN.
  }
};
/// Exact GELU: x times the normal distribution function of x (Hendrycks and
/// Gimpel, 2016), not the tanh formula.
struct Gelu : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T x) const {
    return T{0.5} * x * (T{1} + std::erf(x * T(0.70710678118654752)));
  }
};
struct LogicalNot : AnyType {
  template <class T>
  BRIGADE_HD bool operator()(T x) const {
    return x == T{0};
  }
};

// ---- Binary -----------------------------------------------------------------------------------------------
struct Add : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>)
      return a || b;
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(bits_of(a) + bits_of(b));
    else
      return a + b;
  }
};
struct Sub : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(bits_of(a) - bits_of(b));
    else
      return a - b;
  }
};
struct Mul : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>)
      return a && b;
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(bits_of(a) * bits_of(b));
    else
      return a * b;
  }
};
struct Div : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      if (b == T{0}) return T{0};
      // The smallest integer over -1 would trap.
      if constexpr (std::is_signed_v<T>)
        if (b == T{-1}) return Neg{}(a);
      return static_cast<T>(a / b);
    } else {
      return a / b;
    }
  }
};
struct Min : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T a, T b) const {
    return (a < b || a != a) ? a : b;
  }
};
struct Max : AnyType {
  template <class T>
  BRIGADE_HD T operator()(T a, T b) const {
    return (a > b || a != a) ? a : b;
  }
};
struct Pow : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T a, T b) const {
    return std::pow(a, b);
  }
};
struct Eq : AnyType {
  template <class T>
  BRIGADE_HD bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Ne : AnyType {
  template <class T>
  BRIGADE_HD bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Lt : AnyType {
  template <class T>
  BRIGADE_HD bool operator()(T a, T b) const {
    return a < b;
  }
};
struct Le : AnyType {
  template <class T>
  BRIGADE_HD bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Gt : AnyType {
  template <class T>
  BRIGADE_HD bool operator()(T a, T b) const {
    return a > b;
  }
};
struct Ge : AnyType {
  template <class T>
  BRIGADE_HD bool operator()(T a, T b) const {
    return a >= b;
  }
};
// y = max(x, 0)  =>  dx = dy where y > 0
struct ReluGrad : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T dy, T y) const {
    return y > T{0} ? dy : T{0};
  }
};
// y = 1 / (1 + e^-x)  =>  dx = dy y (1 - y)
struct SigmoidGrad : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T dy, T y) const {
    return dy * y * (T{1} - y);
  }
};
// y = tanh x  =>  dx = dy (1 - y²)
struct TanhGrad : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T dy, T y) const {
    return dy * (T{1} - y * y);
  }
};
// y = x Φ(x)  =>  dx = dy (Φ(x) + x φ(x)), φ(x) = e^(-x²/2) / √(2π)
struct GeluGrad : FloatsOnly {
  template <class T>
  BRIGADE_HD T operator()(T dy, T x) const {
    const T distribution = T{0.5} * (T{1} + std::erf(x * T(0.70710678118654752)));
    const T density = T(0.39894228040143268) * std::exp(T{-0.5} * x * x);
    return dy * (distribution + x * density);
  }
};

/// Calls f(functor) with the functor of `op`.
template <class F>
void dispatch_unary(Unary op, F&& f) {
  switch (op) {
    case Unary::neg:
      return f(Neg{});
    case Unary::abs:
      return f(Abs{});
    case Unary::exp:
      return f(Exp{});
    case Unary::log:
      return f(Log{});
    case Unary::sqrt:
      return f(Sqrt{});
    case Unary::rsqrt:
      return f(Rsqrt{});
    case Unary::tanh:
      return f(Tanh{});
    case Unary::sigmoid:
      return f(Sigmoid{});
    case Unary::relu:
      return f(Relu{});
    case Unary::gelu:
      return f(Gelu{});
    case Unary::logical_not:
      return f(LogicalNot{});
  }
}

/// Calls f(functor) with the functor of `op`.
template <class F>
void dispatch_binary(Binary op, F&& f) {
  switch (op) {
    case Binary::add:
      return f(Add{});
    case Binary::sub:
      return f(Sub{});
    case Binary::mul:
      return f(Mul{});
    case Binary::div:
      return f(Div{});
    case Binary::min:
      return f(Min{});
    case Binary::max:
      return f(Max{});
    case Binary::pow:
      return f(Pow{});
    case Binary::eq:
      return f(Eq{});
    case Binary::ne:
      return f(Ne{});
    case Binary::lt:
      return f(Lt{});
    case Binary::le:
      return f(Le{});
    case Binary::gt:
      return f(Gt{});
    case Binary::ge:
      return f(Ge{});
    case Binary::relu_grad:
      return f(ReluGrad{});
    case Binary::sigmoid_grad:
      return f(SigmoidGrad{});
    case Binary::tanh_grad:
      return f(TanhGrad{});
    case Binary::gelu_grad:
      return f(GeluGrad{});
  }
}

}  // namespace brigade::functor
