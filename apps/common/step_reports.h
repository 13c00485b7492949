// SPDX-License-Identifier: MIT
// apps/common/step_reports.h - what becomes known of a step, told to the log in the order of steps: on a device two
// steps later, when loss and norm have long been there, so that nobody waits.
// Read before: core/fetched.h, apps/common/run_log.h.
#pragma once

#include <deque>

#include "apps/common/run_log.h"
#include "core/fetched.h"
#include "nn/optim/loss_scale.h"

namespace brigade::apps {

/// All ranks make the same calls in the same order.
class StepReports {
 public:
  /// `loss_scale`: nullptr where losses are not scaled. All must outlive it. Tells `log` to ask before it flushes.
  StepReports(const TrainOptions& options, const Course& course, dist::Ddp& ddp,
              const optim::LossScale* loss_scale, RunLog& log);

  /// A step that began at `begin`, the last in Ddp's ledger, is over; on a device it is enqueued. `loss`: one f64.
  /// Throws Error for a loss that is not finite, unless Ddp says more of it, and for gradients that are not with any
  /// loss scale.
  void add(std::int64_t step, std::int64_t epoch, double lr, Clock::time_point begin, const Tensor& loss);
  /// Tells of all. Blocks for the device. Throws as add() does.
  void settle();

 private:
  struct Late {
    StepReport report;
    Fetched loss, grad_squares;
    bool has_norm;
  };
  void tell_all_but(std::size_t newest);
  void tell(const StepReport& report);
  void tell_skipped();

  const TrainOptions& options_;
  const Course& course_;
  dist::Ddp& ddp_;
  const optim::LossScale* loss_scale_;
  RunLog& log_;
  bool on_device_;
  std::int64_t told_skipped_;
  std::deque<Late> late_;
};

}  // namespace brigade::apps
