// SPDX-License-Identifier: MIT
// kernels/reference/reduce.cpp - reductions in row-major order with one accumulator an output.

#include "kernels/functor/reduce.h"

#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace brigade::reference {

void reduce(Reduction op, const Tensor& x, Tensor& out) {
  dispatch(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Wide = wide_t<T>;
    functor::dispatch_reduction(op, [&](auto f) {
      // A dense accumulator for each output element, addressed by the strides of
      // a dense tensor of out's shape.
      const Tensor totals = Tensor::empty(out.shape(), dtype_of<Wide>());
      for_each_index(out.shape(), [&](const Dims& i) {
        totals.data<Wide>()[offset(totals, i)] = f.template start<Wide>();
      });
      for_each_index(x.shape(), [&](const Dims& i) {
        Wide& total = totals.data<Wide>()[offset(totals, i)];
        total = f(total, convert<Wide>(x.data<T>()[offset(x, i)]));
      });
      const std::int64_t count = out.numel() > 0 ? x.numel() / out.numel() : 0;
      for_each_index(out.shape(), [&](const Dims& i) {
        out.data<T>()[offset(out, i)] = convert<T>(f.finish(totals.data<Wide>()[offset(totals, i)], count));
      });
    });
  });
}

void argmax(const Tensor& x, int dim, Tensor& out) {
  dispatch(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_index(out.shape(), [&](const Dims& o) {
      Dims i = o;
      auto value = [&](std::int64_t k) {
        i[dim] = k;
        return convert<compute_t<T>>(x.data<T>()[offset(x, i)]);
      };
      std::int64_t best = 0;
      for (std::int64_t k = 1; k < x.size(dim); ++k)
        if (functor::beats(value(k), value(best))) best = k;
      out.data<std::int64_t>()[offset(out, o)] = best;
    });
  });
}

void sum_of_squares(const Tensor& x, Tensor& sum) {
  double total = 0;
  dispatch(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_index(x.shape(), [&](const Dims& i) {
      const double value = convert<double>(x.data<T>()[offset(x, i)]);
      total += value * value;
    });
  });
  *sum.data<double>() = total;
}

}  // namespace brigade::reference
