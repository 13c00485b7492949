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
  /// Takes back what was counted of updates that a device has skipped, as far as FlatParameters knows of them.
  /// begin_step() does it; before that, whoever saves state.
  void take_back_skipped();
  virtual void update(Range range) = 0;

  // A step whose kernels are captured (core/graph.h) and then repeated. What changes from step to step, like the
  // learning rate, lies in memory of the device then.

  /// Before a capture that step() stands in.
  void prepare_capture();
  /// Writes the constants of the step that begin_step() began, on the current stream: before each launch, that of the
  /// captured step too. Does not block.
  void send_constants();
  /// All that step() does but its kernels: before the launch that repeats them. Throws Error if they would not be the
  /// captured ones, because other parameters have gradients now, say.
  void repeat();

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
  /// For the kernel of a run; where it is not captured, with what FlatParameters::control() says.
  StepControl control() const;
  /// The same with two numbers that runs of equal `updates` share.
  StepControl control(std::int64_t updates, float first, float second);
  /// Whether update() launches kernels; or else all but that.
  bool launches() const { return mode_ != Mode::repeat; }
  /// Appends "kind.<parameter>" for all parameters.
  void append_state(NamedTensors& out, const std::string& kind, const FlatBuffer& buffer) const;
  void append_updates(NamedTensors& out) const;

  FlatParameters* parameters_;
  double lr_;
  DecayOn decay_;
  std::int64_t steps_ = 0;

 private:
  enum class Mode : std::uint8_t { launch, capture, repeat };
  // In constants_: lr first, then the pairs of control().
  std::size_t pair_of(std::int64_t updates, float first, float second);

  Mode mode_ = Mode::launch;
  Tensor constants_;                 // f32 of the device.
  std::vector<float> values_;        // What they are in this step, …
  std::vector<std::int64_t> pairs_;  // … by the updates whose pair it is, …
  std::vector<float> sent_;          // … and what is there now.
  std::vector<Range> captured_;      // Runs of the captured step.

  Tensor updates_;                    // i64 by position.
  std::vector<Range> last_updated_;   // Since begin_step().
  std::int64_t skipped_updates_ = 0;  // Of FlatParameters::skipped_updates(), those taken back.
};

}  // namespace brigade::optim
