// SPDX-License-Identifier: MIT
// apps/common/late_reports.cpp - see the header.
#include "apps/common/late_reports.h"

#include <cmath>
#include <utility>

namespace brigade::apps {

void LateReports::add(StepReport report, const Tensor& loss, const Tensor& grad_squares) {
  Late late{std::move(report), Fetched(loss), {}, grad_squares.defined()};
  if (late.has_norm) late.grad_squares = Fetched(grad_squares);
  late_.push_back(std::move(late));
  tell_all_but(steps_late_);
}

void LateReports::tell_all_but(std::size_t newest) {
  while (late_.size() > newest) {
    const Late next = std::move(late_.front());
    late_.pop_front();
    StepReport report = next.report;
    report.loss = next.loss.values<double>().front();
    if (next.has_norm) report.grad_norm = std::sqrt(next.grad_squares.values<double>().front());
    tell_(report);
  }
}

}  // namespace brigade::apps
