// SPDX-License-Identifier: MIT
// apps/common/evaluate.h - loss and accuracy over a test set that all ranks share.
#pragma once

#include "apps/common/run_log.h"
#include "data/dataset.h"
#include "dist/process_group.h"
#include "nn/module.h"

namespace brigade::apps {

/// Every image of `test` counts exactly once whatever the number of ranks: no padding, counts are summed over
/// ranks. Collective. Leaves `model` in training mode.
EvaluationReport evaluate(nn::Module& model, const data::Dataset& test, std::int64_t batch_size,
                          dist::ProcessGroup& group);

}  // namespace brigade::apps
