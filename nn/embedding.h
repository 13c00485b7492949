// SPDX-License-Identifier: MIT
// nn/embedding.h - a table of vectors, looked up by index. Read next: models/gpt.h.
#pragma once

#include "nn/module.h"

namespace brigade::nn {

/// ids i64 [..] -> [.., size]; parameter weight [count, size], standard normal as in PyTorch.
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t size);
  /// Throws Error naming position and id for an id outside [0, count).
  Variable forward(const Variable& ids) override;

  const Variable weight;
};

}  // namespace brigade::nn
