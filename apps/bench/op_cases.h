// SPDX-License-Identifier: MIT
// apps/bench/op_cases.h - operations on given shapes, ready to be timed: what a model calls in a training step, as its
// spans tell, or shapes typed by hand. Read before: core/span.h. Used by bench_op and by bench_train's bound.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/span.h"
#include "kernels/kernels.h"

namespace brigade::apps {

/// One operation on operands of its own.
struct OpCase {
  std::string op = {};     ///< "conv2d_grad_weight"
  std::string shape = {};  ///< "32x64x32x32 * 64x64x3x3, stride 1, padding 1"
  double flops = 0;        ///< Of products, counted as direct convolution does; 0: memory decides, see bytes.
  double bytes = 0;        ///< Each operand and result once.
  std::function<void()> call = {};
};

/// Operations that go together, by the name that --op takes.
struct OpFamily {
  std::string_view name, description;
  std::string_view numbers;  ///< What --shape lists: "N,C,H,W".
  /// The spans of these names have the shapes; `cases` makes them from one of those.
  std::vector<std::string_view> spans;
  std::vector<OpCase> (*cases)(const SpanList::Entry& span, DType precision);
  /// Spans from as many numbers as `numbers` has.
  std::vector<SpanList::Entry> (*from_numbers)(const std::vector<std::int64_t>& n);
};
const std::vector<OpFamily>& op_families();

/// Activations are channels_last, as in our models. Empty for a span that no family knows.
std::vector<OpCase> make_cases(const SpanList::Entry& span, DType precision);

/// What one training step calls, in order: forward, loss, backward. For a network of models::model_names().
struct RecordOptions {
  std::string model = "resnet18", stem = "cifar";
  DType precision = DType::f32;
  std::int64_t batch_size = 32, image_size = 32;
};
struct Recorded {
  std::vector<SpanList::Entry> spans;
  std::int64_t parameters = 0;
};
Recorded record_step(const RecordOptions& options);

/// What a span tells by that name. Throws Error if it does not.
const Dims& detail(const SpanList::Entry& span, std::string_view name);
/// Of a convolution's span.
Window conv_window(const SpanList::Entry& span);

/// Distinct entries, in order of the first, and how often each comes.
std::vector<std::pair<SpanList::Entry, int>> count_equal(const std::vector<SpanList::Entry>& spans);

}  // namespace brigade::apps
