// SPDX-License-Identifier: MIT
// nn/optim/ema.h - an exponential moving average of the parameters (Polyak and Juditsky, 1992), in flat
// memory.
#pragma once

#include "core/safetensors.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::optim {

/// average = decay average + (1 - decay) parameter after each update(); starts at the parameters' values.
/// To evaluate with the average: swap(), evaluate, swap().
class Ema {
 public:
  /// `parameters` must outlive the average.
  Ema(FlatParameters& parameters, double decay);

  /// Throws Error while the average is swapped in.
  void update();
  /// Exchanges the parameters' values with the averages.
  void swap();
  bool swapped() const { return swapped_; }

  /// The averages (while swapped in: the parameters) by parameter name, sharing memory.
  NamedTensors state() const;

 private:
  FlatParameters* parameters_;
  double decay_;
  FlatBuffer average_;
  bool swapped_ = false;
};

}  // namespace brigade::optim
