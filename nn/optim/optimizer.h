// SPDX-License-Identifier: MIT
// nn/optim/optimizer.h - the base of optimizers: one fused pass over a range of flat memory.
// Read before: nn/optim/flat_parameters.h. Read next: nn/optim/sgd.h.
#pragma once

#include <cstdint>
#include <string>

#include "core/fault_point.h"
#include "core/safetensors.h"
#include "core/timeline.h"
#include "nn/optim/flat_parameters.h"

namespace brigade::optim {

/// Which parameters weight decay covers. norm and bias parameters are those with fewer than two dims.
enum class DecayOn : std::uint8_t { all, matrices };

/// Updates parameters from their gradients. Parameters without a gradient are left untouched, values and
/// state: one that gets its first gradient late starts like a new one, as in PyTorch.
///
/// A step is begin_step() once, then update(range) for ranges that cover all positions once, in any order and
/// at any time (a bucket updates as soon as its reduction is done); step() does both. Element by element the
/// result does not depend on the cut.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  void step() {
    const TimedScope span(SpanKind::optimizer);
    fault_point(FaultAt::optimizer);
    begin_step();
    update(parameters_->all());
  }
  virtual void begin_step();
  virtual void update(Range range) = 0;

  double lr() const { return lr_; }
  void set_lr(double lr) { lr_ = lr; }
  std::int64_t steps() const { return steps_; }
  FlatParameters& parameters() { return *parameters_; }

  /// State by parameter name ("momentum.layer1.0.conv1.weight"), sharing memory, in order of registration,
  /// and the count of updates of each parameter ("updates.layer1.0.conv1.weight", i64).
  virtual NamedTensors state() = 0;
  void set_steps(std::int64_t steps) { steps_ = steps; }  ///< For resuming.

 protected:
  /// `parameters` must outlive the optimizer.
  Optimizer(FlatParameters& parameters, double lr, DecayOn decay);

  /// What must be equal for parameters to share a pass: whether they decay, and how often they were updated.
  struct RunKey {
    bool decays;
    std::int64_t updates;
    friend bool operator==(const RunKey&, const RunKey&) = default;
  };
  RunKey run_key(int position) const { return {decays(position), updates(position)}; }
  bool decays(int position) const;
  /// Updates that this parameter has had; finish_update() adds one.
  std::int64_t updates(int position) const { return updates_.data<std::int64_t>()[position]; }
  /// Counts an update of the parameters in `run`, and bumps their versions: a flat view has its own, and a
  /// backward through a graph that saved an older value must notice.
  void finish_update(Range run);
  /// Appends "kind.<parameter>" for all parameters.
  void append_state(NamedTensors& out, const std::string& kind, const FlatBuffer& buffer) const;
  void append_updates(NamedTensors& out) const;

  FlatParameters* parameters_;
  double lr_;
  DecayOn decay_;
  std::int64_t steps_ = 0;

 private:
  Tensor updates_;                    // i64 by position.
  std::vector<Range> last_updated_;   // Since begin_step().
  std::int64_t skipped_updates_ = 0;  // Of FlatParameters::skipped_updates(), those taken back.
};

}  // namespace brigade::optim
