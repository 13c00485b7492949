// SPDX-License-Identifier: MIT
// apps/common/late_reports.h - steps whose loss is still on its way from the device: they are told of two steps later,
// when it has long been there, so that nobody waits. Read before: core/fetched.h, apps/telemetry/reports.h.
#pragma once

#include <deque>
#include <functional>

#include "apps/telemetry/reports.h"
#include "core/fetched.h"

namespace brigade::apps {

class LateReports {
 public:
  /// `tell` gets each step in order, with its loss and norm.
  using Tell = std::function<void(const StepReport& report)>;
  LateReports(Device device, Tell tell) : steps_late_(device == Device{} ? 0 : 2), tell_(std::move(tell)) {}

  /// A step is enqueued. `loss`: one f64; `grad_squares`: of the norm, one f64, or undefined. On the CPU tells of it
  /// now.
  void add(StepReport report, const Tensor& loss, const Tensor& grad_squares);
  /// Tells of all. Blocks for the device.
  void settle() { tell_all_but(0); }

 private:
  struct Late {
    StepReport report;
    Fetched loss, grad_squares;
    bool has_norm;
  };
  void tell_all_but(std::size_t newest);

  std::size_t steps_late_;
  Tell tell_;
  std::deque<Late> late_;
};

}  // namespace brigade::apps
