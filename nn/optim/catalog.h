// SPDX-License-Identifier: MIT
// nn/optim/catalog.h - optimizers by name, for programs. Read next: nn/optim/schedule.h.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "nn/optim/optimizer.h"

namespace brigade::optim {

/// What a program's flags can say; an optimizer takes what applies to it.
struct OptimizerOptions {
  double lr = 0.1;
  double momentum = 0.9;  ///< sgd, lars
  double weight_decay = 0;
  bool nesterov = false;  ///< sgd
  DecayOn decay = DecayOn::all;
};

/// sgd, adamw, lars
std::vector<std::string_view> optimizer_names();

/// Throws Error listing the choices for an unknown name. `parameters` must outlive the optimizer.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, FlatParameters& parameters,
                                          const OptimizerOptions& options);

}  // namespace brigade::optim
