// SPDX-License-Identifier: MIT
// apps/common/model_summary.h - --model-summary: what a model consists of and what its layers cost, as one forward and
// backward of made-up images shows it. Read before: apps/common/wrap_model.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/common/train_options.h"
#include "dist/bucket_plan.h"
#include "dist/process_group.h"
#include "nn/module.h"

namespace brigade::apps {

/// One module, in the order of Module::number_layers().
struct LayerFacts {
  std::string path;             ///< "layer1.0.conv1"; "" is the model.
  std::string kind;             ///< "Conv2d"
  Shape output = {};            ///< Of one image; no dims: it did not run, or passes on what it got.
  std::int64_t parameters = 0;  ///< Its own, without its children's.
  std::int64_t products = 0;  ///< Multiply-adds of its convolutions and matrix products, one image, forward.
  bool ran = false;
};

/// Runs `model` forward on `images` [N, …] and reads off what autograd recorded and which operations it called: shapes
/// and work are those of the run, not of a formula about the model. Returns the result too. A layer under
/// checkpoint() is seen as part of who called it.
struct Observed {
  Variable out;
  std::vector<LayerFacts> layers;
};
Observed observe_forward(nn::Module& model, const Tensor& images);

/// The table: layers in order, when their gradients are ready (1 is the first, as rank 0 observes it), and the bucket
/// that takes them. Collective; blocks.
std::string model_summary(const TrainOptions& options, dist::ProcessGroup& group);

/// The same for a program without a group: starts the ranks of `options`, and the first one prints.
void print_model_summary(const TrainOptions& options);

}  // namespace brigade::apps
