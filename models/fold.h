// SPDX-License-Identifier: MIT
// models/fold.h - from a trained model to its form for inference. Read next: nn/inference_net.h.
#pragma once

#include "nn/folded_net.h"

namespace brigade::models {

/// The network that `model` is in evaluation mode, with the parameters and statistics of this moment. Throws Error for
/// a model that is not a residual network.
nn::FoldedNet fold(const nn::Module& model);

}  // namespace brigade::models
