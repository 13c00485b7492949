// SPDX-License-Identifier: MIT
// autograd/grad_check.h - compares derivatives with central differences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/variable.h"

namespace brigade {

struct GradCheckOptions {
  double step = 1e-6;       ///< Of the central difference (in f64).
  double tolerance = 1e-6;  ///< Allowed |analytic - numeric| / max(1, |numeric|).
};

struct GradCheckResult {
  bool passed = true;
  double worst_error = 0;
  std::string message;  ///< Which element of which input differs most, with both numbers.
};

/// Checks d sum(function(inputs) * r) / d inputs for a fixed random r. Inputs are f64 leaves (Error
/// otherwise); those that require a gradient are checked, element by element, and restored.
/// `function` must be deterministic.
GradCheckResult grad_check(const std::function<Variable(const std::vector<Variable>&)>& function,
                           std::vector<Variable> inputs, const GradCheckOptions& options = {});

}  // namespace brigade
