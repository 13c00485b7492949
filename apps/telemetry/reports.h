// SPDX-License-Identifier: MIT
// apps/telemetry/reports.h - what a training program says of a step and of an evaluation, for the screen and for files.
#pragma once

#include <cstdint>
#include <optional>

#include "core/stream.h"

namespace brigade::apps {

struct StepReport {
  std::int64_t step = 0;   ///< From 1.
  std::int64_t steps = 0;  ///< Of the whole run.
  std::int64_t epoch = 0;  ///< From 0.
  double loss = 0;         ///< Mean over ranks and micro-steps.
  double lr = 0;
  double step_ms = 0;
  std::int64_t images = 0;               ///< Of all ranks.
  std::optional<double> grad_norm = {};  ///< Before clipping, where it is taken.
  std::int64_t ledger_step = 0;          ///< StepRecord::step of it…
  Clock::time_point over{};              ///< … and when it was over.
  double images_per_s() const { return 1000.0 * static_cast<double>(images) / step_ms; }
};

struct EvaluationReport {
  std::int64_t epoch = 0;  ///< From 0.
  std::int64_t step = 0;   ///< After so many steps.
  std::int64_t images = 0, correct = 0;
  double loss = 0;
  double seconds = 0;  ///< That the evaluation took.
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(images); }
};

}  // namespace brigade::apps
