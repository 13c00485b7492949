// SPDX-License-Identifier: MIT
// apps/bench/conv_bound.cpp - see the header.
#include "apps/bench/conv_bound.h"

#include <algorithm>

#include "apps/bench/timing.h"

namespace brigade::apps {
namespace {

using cpu::ConvAlgorithm;
using cpu::ConvPass;
using Entry = SpanList::Entry;

double median_ms(const OpCase& c, const RepeatOptions& options) {
  return spread(repeat_ms(c.call, options)).p50;
}

// Ours are kernels/cpu/amx/; the others call oneDNN for convolutions or for matrix products.
bool is_of_library(const ConvAlgorithm& a) { return !a.name.starts_with("amx"); }

// The fastest of the library's algorithms, given that `chosen` has been found to take `chosen_ms`.
double library_ms(const Entry& span, const OpCase& c, DType precision, const ConvAlgorithm& chosen,
                  double chosen_ms) {
  const cpu::ConvProblem problem = conv_problem(span, precision);
  double best = is_of_library(chosen) ? chosen_ms : 1e30;
  for (const ConvAlgorithm& a : cpu::conv_algorithms()) {
    if (!is_of_library(a) || !a.fits(problem) || a.name == chosen.name) continue;
    const cpu::ConvAlgorithmScope scope(a.name);
    // A look at those that are far behind is enough.
    const double first = median_ms(c, {.warmup = 1, .min_calls = 1, .min_ms = 0, .max_calls = 1});
    if (first < 1.2 * best)
      best = std::min(best, median_ms(c, {.warmup = 0, .min_calls = 2, .min_ms = 20, .max_calls = 50}));
  }
  return best;
}

}  // namespace

cpu::ConvProblem conv_problem(const Entry& span, DType precision) {
  const Dims x = detail(span, "x"), w = detail(span, "weight");
  const Window window = conv_window(span);
  const Shape y{x[0], w[0], window.out_size(0, x[2]), window.out_size(1, x[3])};
  const ConvPass pass = span.name == "conv2d"              ? ConvPass::forward
                        : span.name == "conv2d_grad_input" ? ConvPass::grad_input
                                                           : ConvPass::grad_weight;
  const MemoryFormat format = MemoryFormat::channels_last;
  return {pass, Tensor::empty(Shape(x), precision, {}, format), Tensor::empty(y, precision, {}, format),
          window};
}

ConvBound conv_bound(const RecordOptions& step) {
  ConvBound bound;
  for (const auto& [span, calls] : count_equal(record_step(step).spans)) {
    if (!is_convolution(span.name)) continue;
    for (const OpCase& c : make_cases(span, step.precision)) {
      const double own = median_ms(c, {.min_calls = 5, .min_ms = 30});
      const ConvAlgorithm& chosen = cpu::choose_conv(conv_problem(span, step.precision));
      bound.own_ms += calls * own;
      bound.library_ms += calls * library_ms(span, c, step.precision, chosen, own);
    }
  }
  return bound;
}

}  // namespace brigade::apps
