// SPDX-License-Identifier: MIT
// nn/optim/schedule.cpp - the formulas, and the table of their names.
#include "nn/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/choices.h"

namespace brigade::optim {

namespace {

// From `from` (t = 0) to `to` (t = 1) along half a cosine.
double half_cosine(double from, double to, double t) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * t));
}

constexpr std::array kSchedules{NamedSchedule{"constant", constant_lr}, NamedSchedule{"step", step_lr},
                                NamedSchedule{"cosine", cosine_lr}, NamedSchedule{"one_cycle", one_cycle_lr}};

}  // namespace

double constant_lr(const ScheduleOptions& options, std::int64_t) { return options.lr; }

double step_lr(const ScheduleOptions& options, std::int64_t step) {
  const auto passed = std::count_if(options.drops.begin(), options.drops.end(), [&](double fraction) {
    return static_cast<double>(step) >= fraction * static_cast<double>(options.total_steps);
  });
  return options.lr * std::pow(options.drop_factor, static_cast<double>(passed));
}

double cosine_lr(const ScheduleOptions& options, std::int64_t step) {
  // Step 0 must not have a rate of 0: it would be wasted.
  if (step < options.warmup_steps)
    return options.lr * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  const auto done = static_cast<double>(step - options.warmup_steps);
  return half_cosine(options.lr, options.min_lr,
                     done / static_cast<double>(options.total_steps - options.warmup_steps));
}

double one_cycle_lr(const ScheduleOptions& options, std::int64_t step) {
  const double start = options.lr / options.start_divisor, end = start / options.end_divisor;
  // PyTorch counts steps from 0 and puts the peak one step early.
  const double peak = std::max(options.rise * static_cast<double>(options.total_steps) - 1, 0.0);
  const auto last = static_cast<double>(options.total_steps - 1), at = static_cast<double>(step);
  if (at <= peak) return peak > 0 ? half_cosine(start, options.lr, at / peak) : options.lr;
  return half_cosine(options.lr, end, (at - peak) / (last - peak));
}

std::span<const NamedSchedule> schedules() { return kSchedules; }

Schedule::Schedule(std::string_view name, ScheduleOptions options)
    : schedule_(&choose("schedule", name, kSchedules)), options_(std::move(options)) {
  const ScheduleOptions& o = options_;
  BRIGADE_CHECK(o.lr >= 0 && o.min_lr >= 0, "schedule: rates must be at least 0; got lr ", o.lr, ", min_lr ",
                o.min_lr);
  BRIGADE_CHECK(o.total_steps > 0 && o.warmup_steps >= 0 && o.warmup_steps <= o.total_steps,
                "schedule: needs 0 <= warm-up steps <= total steps > 0; got warm-up ", o.warmup_steps,
                ", total ", o.total_steps);
  BRIGADE_CHECK(o.rise >= 0 && o.rise <= 1 && o.start_divisor > 0 && o.end_divisor > 0,
                "schedule: rise must lie in [0, 1] and divisors be positive; got rise ", o.rise,
                ", divisors ", o.start_divisor, ", ", o.end_divisor);
}

double Schedule::operator()(std::int64_t step) const {
  BRIGADE_CHECK(step >= 0, "schedule: step must be at least 0; got ", step);
  return schedule_->lr(options_, std::min(step, options_.total_steps - 1));
}

}  // namespace brigade::optim
