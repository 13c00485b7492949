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

struct NamedFormula {
  std::string_view name;
  Schedule::Formula formula;
};
constexpr std::array kSchedules{NamedFormula{"constant", constant_lr}, NamedFormula{"step", step_lr},
                                NamedFormula{"cosine", cosine_lr}, NamedFormula{"one_cycle", one_cycle_lr}};

}  // namespace

double constant_lr(const ScheduleOptions& options, std::int64_t) { return options.peak; }

double step_lr(const ScheduleOptions& options, std::int64_t step) {
  const auto passed = std::count_if(options.drops.begin(), options.drops.end(), [&](double fraction) {
    return static_cast<double>(step) >= fraction * static_cast<double>(options.total_steps);
  });
  return options.peak * std::pow(options.drop_factor, static_cast<double>(passed));
}

double cosine_lr(const ScheduleOptions& options, std::int64_t step) {
  const auto rising = static_cast<std::int64_t>(options.warmup * static_cast<double>(options.total_steps));
  // Step 0 must not have a rate of 0: it would be wasted.
  if (step < rising) return options.peak * static_cast<double>(step + 1) / static_cast<double>(rising);
  const auto done = static_cast<double>(step - rising);
  return half_cosine(options.peak, options.min_lr, done / static_cast<double>(options.total_steps - rising));
}

double one_cycle_lr(const ScheduleOptions& options, std::int64_t step) {
  const double start = options.peak / options.start_divisor, end = start / options.end_divisor;
  // PyTorch counts steps from 0 and puts the peak one step early.
  const double peak = std::max(options.rise * static_cast<double>(options.total_steps) - 1, 0.0);
  const auto last = static_cast<double>(options.total_steps - 1), at = static_cast<double>(step);
  if (at <= peak) return peak > 0 ? half_cosine(start, options.peak, at / peak) : options.peak;
  return half_cosine(options.peak, end, (at - peak) / (last - peak));
}

Schedule::Schedule(Formula formula, ScheduleOptions options)
    : formula_(formula), options_(std::move(options)) {
  const ScheduleOptions& o = options_;
  BRIGADE_CHECK(o.peak >= 0 && o.min_lr >= 0, "schedule: rates must be at least 0; got peak ", o.peak,
                ", minimum ", o.min_lr);
  BRIGADE_CHECK(o.total_steps > 0 && o.warmup >= 0 && o.warmup <= 1,
                "schedule: total steps must be positive, warm-up in [0, 1]; got steps ", o.total_steps,
                ", warm-up ", o.warmup);
  BRIGADE_CHECK(o.rise >= 0 && o.rise <= 1 && o.start_divisor > 0 && o.end_divisor > 0,
                "schedule: rise must lie in [0, 1] and divisors be positive; got rise ", o.rise,
                ", divisors ", o.start_divisor, ", ", o.end_divisor);
}

double Schedule::operator()(std::int64_t step) const {
  BRIGADE_CHECK(step >= 0, "schedule: step must be at least 0; got ", step);
  return formula_(options_, std::min(step, options_.total_steps - 1));
}

std::vector<std::string_view> schedule_names() { return names(kSchedules); }

Schedule make_schedule(std::string_view name, const ScheduleOptions& options) {
  return {choose("schedule", name, kSchedules).formula, options};
}

}  // namespace brigade::optim
