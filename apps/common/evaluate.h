// SPDX-License-Identifier: MIT
// apps/common/evaluate.h - what all ranks say about a model together: loss and accuracy on a test set, and one
// fingerprint of its parameters.
#pragma once

#include <string>

#include "apps/common/course.h"
#include "apps/telemetry/reports.h"
#include "data/dataset.h"
#include "dist/process_group.h"
#include "nn/module.h"

namespace brigade::apps {

/// Every image of `test` counts exactly once whatever the number of ranks: no padding, counts are summed over
/// ranks. With --eval-flip by the mean of the logits of each image and of its mirror image, twice the work. `now`:
/// where training stands. Collective; blocks. Leaves `model` in training mode.
EvaluationReport evaluate(nn::Module& model, const data::Dataset& test, const TrainOptions& options,
                          const SamplerPosition& now, dist::ProcessGroup& group);

/// SHA-256 of all parameters in order of registration, in hex. Collective; throws Error if ranks disagree.
std::string parameters_sha256(const nn::Module& model, dist::ProcessGroup& group);

}  // namespace brigade::apps
