// SPDX-License-Identifier: MIT
// apps/bench/conv_bound.h - what the convolutions of a training step take by themselves, which bounds the step.
// Read before: apps/bench/op_cases.h, kernels/cpu/conv_algorithms.h. Used by bench_train and bench_op --tune.
#pragma once

#include "apps/bench/op_cases.h"
#include "kernels/cpu/conv_algorithms.h"

namespace brigade::apps {

/// Milliseconds of all convolutions of one step, each alone, repeated, in this process and on its threads.
struct ConvBound {
  double own_ms = 0;  ///< By the algorithms that the step itself takes: our own fastest.
  double library_ms =
      0;  ///< By the fastest of the library's for each: direct, blocked, Winograd, im2col and product.
};
/// Takes as long as some ten steps and more. The step of a model without convolutions has zeros.
ConvBound conv_bound(const RecordOptions& step);

/// Whether a span of that name is one of a convolution's three passes.
inline bool is_convolution(std::string_view operation) { return operation.starts_with("conv2d"); }

/// What the choice of an algorithm looks at. Activations are channels_last.
cpu::ConvProblem conv_problem(const SpanList::Entry& span, DType precision);

}  // namespace brigade::apps
