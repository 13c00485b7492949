// SPDX-License-Identifier: MIT
// dist/gradient_memory.h - whether gradients and buckets really share their memory, told by addresses and not by what
// the code means to do. Read before: nn/optim/flat_parameters.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"

namespace brigade::dist {

/// Bytes.
struct GradientMemory {
  std::int64_t gradients = 0;  ///< Of the parameters' gradients.
  std::int64_t buckets = 0;    ///< Of the flat memory in which they travel, gaps between gradients included.
  std::int64_t together = 0;   ///< Of both, what they share counted once.

  /// Of `together` to `gradients`: 1 where a bucket is the memory of its gradients, 2 where it holds copies.
  double ratio() const { return static_cast<double>(together) / static_cast<double>(gradients); }
  /// "gradients 42.625 MiB, in buckets of 42.627 MiB: together 1.0001 times the gradients"
  std::string text() const;
};

/// All tensors dense.
GradientMemory gradient_memory(std::span<const Tensor> gradients, std::span<const Tensor> buckets);

}  // namespace brigade::dist
