// SPDX-License-Identifier: MIT
// apps/common/step_reports.cpp - see the header.
#include "apps/common/step_reports.h"

#include <cmath>
#include <utility>

namespace brigade::apps {

StepReports::StepReports(const TrainOptions& options, const Course& course, dist::Ddp& ddp,
                         const optim::LossScale* loss_scale, RunLog& log)
    : options_(options),
      course_(course),
      ddp_(ddp),
      loss_scale_(loss_scale),
      log_(log),
      on_device_(ddp.group().device() != Device{}),
      told_skipped_(ddp.last_skipped_step()) {
  log.before_flush([this] {
    ddp_.settle();
    tell_all_but(0);
  });
}

void StepReports::add(std::int64_t step, std::int64_t epoch, double lr, Clock::time_point begin,
                      const Tensor& loss) {
  const auto now = Clock::now();
  StepReport report{.step = step,
                    .steps = course_.steps,
                    .epoch = epoch,
                    .lr = lr,
                    .step_ms = dist::milliseconds(now - begin),
                    .images = course_.images_per_step,
                    .ledger_step = ddp_.ledger().last().step,
                    .over = now};
  if (options_.clip_norm > 0 && !on_device_) report.grad_norm = ddp_.grad_norm();
  const Tensor grad_squares = ddp_.grad_squares();
  Late late{std::move(report), Fetched(loss), {}, grad_squares.defined()};
  if (late.has_norm) late.grad_squares = Fetched(grad_squares);
  late_.push_back(std::move(late));
  tell_all_but(on_device_ ? 2 : 0);
  log_.step_over();
  tell_skipped();
}

void StepReports::settle() {
  ddp_.settle();
  tell_all_but(0);
  tell_skipped();
}

void StepReports::tell_all_but(std::size_t newest) {
  while (late_.size() > newest) {
    const Late next = std::move(late_.front());
    late_.pop_front();
    StepReport report = next.report;
    report.loss = next.loss.values<double>().front();
    if (next.has_norm) report.grad_norm = std::sqrt(next.grad_squares.values<double>().front());
    tell(report);
  }
}

void StepReports::tell(const StepReport& report) {
  // Whose loss was not finite, and that nothing was updated, Ddp says; on a device later, when it has skipped a step.
  const bool may_skip = on_device_ && options_.non_finite == "skip";
  BRIGADE_CHECK(std::isfinite(report.loss) || ddp_.skipped() || may_skip, "loss is ", report.loss,
                " at step ", report.step, "; lower --lr, or look at the data");
  log_.step(report);
}

void StepReports::tell_skipped() {
  if (ddp_.last_skipped_step() <= told_skipped_) return;
  told_skipped_ = ddp_.last_skipped_step();
  const auto scale = loss_scale_ != nullptr ? std::optional(loss_scale_->value()) : std::nullopt;
  log_.skipped(told_skipped_, ddp_.skip_reason(), scale);
  constexpr double kSmallestScale = 0x1p-14;
  BRIGADE_CHECK(!scale || *scale >= kSmallestScale, "gradients are not finite with any loss scale, down to ",
                *scale, "; lower --lr, or look at the data");
}

}  // namespace brigade::apps
