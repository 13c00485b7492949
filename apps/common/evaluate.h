// SPDX-License-Identifier: MIT
// apps/common/evaluate.h - what all ranks say about a model together: loss and accuracy on a test set, and one
// fingerprint of its parameters.
#pragma once

#include <string>

#include "apps/telemetry/reports.h"
#include "data/dataset.h"
#include "dist/process_group.h"
#include "nn/module.h"

namespace brigade::apps {

struct EvaluateOptions {
  std::int64_t batch_size = 32;  ///< Per rank.
  /// The mean of the logits of each image and of its mirror image, twice the work.
  bool flip = false;
};

/// Every image of `test` counts exactly once whatever the number of ranks: no padding, counts are summed over
/// ranks. Collective. Leaves `model` in training mode.
EvaluationReport evaluate(nn::Module& model, const data::Dataset& test, const EvaluateOptions& options,
                          dist::ProcessGroup& group);

/// SHA-256 of all parameters in order of registration, in hex. Collective; throws Error if ranks disagree.
std::string parameters_sha256(const nn::Module& model, dist::ProcessGroup& group);

}  // namespace brigade::apps
