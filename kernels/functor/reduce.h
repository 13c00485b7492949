// SPDX-License-Identifier: MIT
// kernels/functor/reduce.h - the scalar maths of Reduction and argmax, for every device.
// A reduction is start(), a fold of wide values (kernels/functor/convert.h), and finish(total, count).
#pragma once

#include <limits>

#include "kernels/functor/elementwise.h"

namespace brigade::functor {

struct SumOf : Add {
  template <class W>
  BRIGADE_HD static constexpr W start() {
    return W{0};
  }
  template <class W>
  BRIGADE_HD static W finish(W total, std::int64_t) {
    return total;
  }
};
struct MeanOf : SumOf {
  template <class W>
  BRIGADE_HD static W finish(W total, std::int64_t count) {
    return total / static_cast<W>(count);  // Of nothing: 0 / 0, a NaN. Floats only, see ops::reduce.
  }
};
struct ProductOf : Mul {
  template <class W>
  BRIGADE_HD static constexpr W start() {
    return W{1};
  }
  template <class W>
  BRIGADE_HD static W finish(W total, std::int64_t) {
    return total;
  }
};
struct MaxOf : Max {
  template <class W>
  BRIGADE_HD static constexpr W start() {
    if constexpr (std::is_floating_point_v<W>)
      return -std::numeric_limits<W>::infinity();
    else
      return std::numeric_limits<W>::lowest();
  }
  template <class W>
  BRIGADE_HD static W finish(W total, std::int64_t) {
    return total;
  }
};
struct MinOf : Min {
  template <class W>
  BRIGADE_HD static constexpr W start() {
    if constexpr (std::is_floating_point_v<W>)
      return std::numeric_limits<W>::infinity();
    else
      return std::numeric_limits<W>::max();
  }
  template <class W>
  BRIGADE_HD static W finish(W total, std::int64_t) {
    return total;
  }
};

/// Calls f(reducer) with the reducer of `op`.
template <class F>
void dispatch_reduction(Reduction op, F&& f) {
  switch (op) {
    case Reduction::sum:
      return f(SumOf{});
    case Reduction::mean:
      return f(MeanOf{});
    case Reduction::max:
      return f(MaxOf{});
    case Reduction::min:
      return f(MinOf{});
    case Reduction::prod:
      return f(ProductOf{});
  }
}

/// True if `candidate` replaces `best` in an argmax: larger, or the first NaN. Equals keep the first.
template <class T>
BRIGADE_HD bool beats(T candidate, T best) {
  return candidate > best || (candidate != candidate && best == best);
}

}  // namespace brigade::functor
