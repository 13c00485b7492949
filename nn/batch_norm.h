// SPDX-License-Identifier: MIT
// nn/batch_norm.h - batch normalisation of images.
// Read before: autograd/ops/norm.h. Read next: nn/layer_norm.h.
#pragma once

#include <utility>

#include "autograd/ops/norm.h"
#include "nn/conv2d.h"
#include "nn/module.h"

namespace brigade::nn {

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  ///< Weight of the new batch in the running statistics.
};

/// A convolution's result with the moments of its channels, if the convolution took them.
struct WithMoments {
  Variable out;
  ChannelMoments moments;
};

/// x [N, C, H, W] -> same. Training normalises with the batch's (biased) variance and tracks mean and
/// unbiased variance in running_mean and running_var; evaluation normalises with those. Parameters weight (1)
/// and bias (0); buffers running_mean, running_var and num_batches_tracked (i64, no dims).
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(std::int64_t channels, const BatchNormOptions& options = {});

  /// Throws Error in training when a channel has a single value: its variance is 0
  /// and its unbiased one infinite.
  Variable forward(const Variable& x) override { return forward(x, {}); }
  /// The same with what follows it in one pass: bn(x, {.relu = true, .residual = shortcut}).
  Variable forward(const Variable& x, const BatchNormThen& then, const ChannelMoments& moments = {});
  using Module::operator();
  Variable operator()(const Variable& x, const BatchNormThen& then) {
    return (*this)(WithMoments{x, {}}, then);
  }
  /// norm(norm.conv(conv, x), then) is norm(conv(x), then) with a pass over memory less in training.
  Variable operator()(const WithMoments& x, const BatchNormThen& then) {
    const TimedScope span(SpanKind::forward, layer());
    return forward(x.out, then, x.moments);
  }

  /// conv(x), a result that this layer is going to normalise: in training the convolution takes the batch's statistics
  /// while it writes.
  WithMoments conv(Conv2d& conv, const Variable& x) const;

  /// From now on training normalises with statistics that `combine` sums over all shares of a batch, and tracks those:
  /// see CombineStatistics. The limit of more than one value counts for the whole batch then. Empty: on its own again.
  void set_statistics_combiner(CombineStatistics combine) { combine_ = std::move(combine); }

  const RunningStats& running() const { return running_; }
  double epsilon() const { return options_.epsilon; }

  const Variable weight;
  const Variable bias;

 private:
  BatchNormOptions options_;
  RunningStats running_;
  Tensor num_batches_tracked_;
  CombineStatistics combine_;
};

/// Gives `combine` to every batch norm in the tree of `module` and returns how many there are. Synchronised batch norm
/// over the ranks of a group (all must run the same layers in the same order, in backward too; dist/sum_over_ranks.h):
///   set_statistics_combiner(model, [&](const Variable& sums) { return dist::sum_over_ranks(sums, group); });
int set_statistics_combiner(Module& module, const CombineStatistics& combine);

}  // namespace brigade::nn
