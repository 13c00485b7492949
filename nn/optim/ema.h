// SPDX-License-Identifier: MIT
// nn/optim/ema.h - an exponential moving average of the parameters (Polyak and
// Juditsky, 1992), in flat memory.
#pragma once

#include <utility>

#include "core/safetensors.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::optim {

/// average = decay average + (1 - decay) parameter after each update(); starts at the parameters' values.
/// To evaluate with the average: `const auto scope = ema.average_scope();`.
class Ema {
 public:
  /// `parameters` must outlive the average.
  Ema(FlatParameters& parameters, double decay);

  /// Throws Error while the average is swapped in.
  void update();
  /// Exchanges the parameters' values with the averages.
  void swap();
  /// Swaps the averages in, and out again at the end of the scope.
  class Scope {
   public:
    explicit Scope(Ema& ema) : ema_(&ema) { ema.swap(); }
    Scope(Scope&& other) noexcept : ema_(std::exchange(other.ema_, nullptr)) {}
    Scope& operator=(Scope&&) = delete;
    ~Scope() {
      if (ema_ != nullptr) ema_->swap();
    }

   private:
    Ema* ema_;
  };
  [[nodiscard]] Scope average_scope() { return Scope(*this); }
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
